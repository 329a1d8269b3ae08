"""The slow way to today's schema: step by step, through Alembic.

Enters: a connection inside a transaction, at an older revision. Leaves: the same connection at the newest one. What can go wrong:
a revision that `versions/` does not have is a `StartError`, since it can only be that of a newer release.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from contracts.errors import StartError

FOLDER = Path(__file__).parent


def settings(connection: Connection, folder: Path = FOLDER) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, found: str, folder: Path = FOLDER) -> None:
    config = settings(connection, folder)
    try:
        ScriptDirectory.from_config(config).get_revision(found)
    except CommandError as error:
        raise StartError(
            f"the database is at revision {found}, which this release does not know: a newer one made it. Install that release,"
            " or name another database."
        ) from error
    command.upgrade(config, "head")
