"""All rows of the service, by the stage that writes them. Other stages only read; times are Unix milliseconds, UTC.

`body` columns hold the record as JSON; the columns beside it are what queries need.
"""

from __future__ import annotations

from sqlalchemy import Table
from sqlmodel import SQLModel

from infra.db.tables import ingest, keys, learner, people, registry, rewarding, serving, stream


def all_tables() -> list[Table]:
    return [
        table
        for module in (stream, ingest, rewarding, learner, registry, serving, people, keys)
        for row in vars(module).values()
        if isinstance(row, type) and issubclass(row, SQLModel) and row is not SQLModel
        if (table := getattr(row, "__table__", None)) is not None
    ]
