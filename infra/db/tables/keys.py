"""Who may speak to the service. Only hashes are here: a key itself is shown once, when it is made."""

from __future__ import annotations

from sqlmodel import BigInteger, Field, SQLModel


class KeyRow(SQLModel, table=True):
    """`scopes`: names, comma separated. `rate`: events per second, NULL for no limit. The row stays when a key is revoked."""

    __tablename__ = "infra_keys"
    key_id: str = Field(primary_key=True)
    name: str
    scopes: str
    hashed: str
    rate: float | None
    created_ms: int = Field(sa_type=BigInteger)
    revoked_ms: int | None = Field(sa_type=BigInteger)
