"""Where the outside systems are. Without any setting all of them live in one folder, `.slipstream/`.

Enters: `SLIPSTREAM_*` environment variables. Leaves: checked addresses. A variable that makes no sense raises `StartError`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.errors import StartError
from contracts.record import first_fault

Config = TypeVar("Config", bound=BaseSettings)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SLIPSTREAM_", frozen=True, extra="ignore", env_ignore_empty=True)

    home: Path = Path(".slipstream")
    policies: Annotated[Path | None, Field(description="folder of policy files; default: ./policies, else the shipped ones")] = None
    only: Annotated[str | None, Field(description="policies to run, by name, comma separated; default: all")] = None
    log_url: str | None = None
    db_url: str | None = None
    redis_url: str | None = None
    mlflow_url: str | None = None
    artifacts: Path | None = None
    host: str = "127.0.0.1"
    port_base: Annotated[int, Field(ge=1024, le=65_000, description="gateway; +1 collector, +2 console, +3 Redis")] = 8600
    threads: Annotated[int, Field(ge=1, le=256, description="compute threads per process")] = 1

    @property
    def event_log(self) -> str:
        return self.log_url or f"sqlite:///{self.home / 'log.db'}"

    @property
    def database(self) -> str:
        return self.db_url or f"sqlite:///{self.home / 'slipstream.db'}"

    @property
    def redis(self) -> str:
        return self.redis_url or f"redis://127.0.0.1:{self.redis_port}/0"

    @property
    def mlflow(self) -> str:
        return self.mlflow_url or f"sqlite:///{self.home / 'mlflow.db'}"

    @property
    def artifact_root(self) -> Path:
        return self.artifacts or self.home / "artifacts"

    @property
    def spool(self) -> Path:
        """What waits here while the log is away."""
        return self.home / "spool"

    @property
    def gateway_port(self) -> int:
        return self.port_base

    @property
    def collector_port(self) -> int:
        return self.port_base + 1

    @property
    def console_port(self) -> int:
        return self.port_base + 2

    @property
    def redis_port(self) -> int:
        return self.port_base + 3

    @property
    def runs_own_redis(self) -> bool:
        return self.redis_url is None


def load(kind: type[Config]) -> Config:
    """A stage's own settings. A variable that begins like them and is none of them is a slip, and told."""
    prefix = str(kind.model_config["env_prefix"])
    names = {f"{prefix}{name}".upper() for name in kind.model_fields}
    for variable in sorted(os.environ):
        if variable.upper().startswith(prefix) and variable.upper() not in names:
            raise StartError(f"{variable} is not known; there are: {', '.join(sorted(names))}")
    return _read(kind)


def load_settings() -> Settings:
    found = _read(Settings)
    try:
        return found.model_copy(update={"home": found.home.expanduser().resolve()})
    except (RuntimeError, OSError) as error:
        raise StartError(f"SLIPSTREAM_HOME {found.home} names no folder: {error}") from error


def _read(kind: type[Config]) -> Config:
    """The value is left out of what is told: it may be a secret."""
    prefix = str(kind.model_config["env_prefix"])
    try:
        return kind()
    except ValidationError as error:
        name, _, what = first_fault(error).partition(": ")
        if name in kind.model_fields:
            raise StartError(f"{prefix}{name.upper()}: {what}") from None
        raise StartError(f"a {prefix} variable is wrong: {what.removeprefix('Value error, ')}") from None
