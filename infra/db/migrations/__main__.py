"""`python -m infra.db.migrations "what changed"` writes the next revision by comparing the tables with the last one.

`--baseline` instead writes the first revision anew, which is only right as long as no database of a release exists. The file is a
draft: read it, then set `HEAD` to its number.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from infra.db.migrations.upgrade import FOLDER, settings

BASELINE = "--baseline"


def main(message: str) -> None:
    if message == BASELINE:
        for file in (FOLDER / "versions").glob("[0-9]*.py"):
            file.unlink()
    with tempfile.TemporaryDirectory() as folder, create_engine(f"sqlite:///{folder}/scratch.db").begin() as connection:
        config = settings(connection)
        number = f"{sum(1 for _ in ScriptDirectory.from_config(config).walk_revisions()) + 1:04d}"
        command.upgrade(config, "head")
        script = command.revision(config, message.strip("-"), autogenerate=True, rev_id=number)
    path = str(getattr(script, "path", FOLDER))
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", path], check=True)
    print(f"{path}: read it, then set HEAD to {number!r} in {FOLDER / '__init__.py'}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
