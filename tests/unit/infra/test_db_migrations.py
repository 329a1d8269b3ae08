"""One schema, however a database came to it; a database that this release cannot know is left alone and says why."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from contracts.errors import StartError
from infra.db.engine import open_db, writing
from infra.db.migrations import HEAD, VERSION_TABLE
from infra.db.migrations.upgrade import FOLDER, settings, upgrade
from infra.db.tables.stream import LeaseRow
from tests.schema import differences, migrate_from_nothing, shape


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'db'}"


def test_a_file_that_is_no_database_gets_one_sentence(url, tmp_path):
    (tmp_path / "db").write_bytes(b"this was never a database, " * 500)
    with pytest.raises(StartError, match="damaged or none"):
        open_db(url)


def test_the_newest_revision_is_the_one_the_code_names():
    with create_engine("sqlite://").connect() as connection:
        assert ScriptDirectory.from_config(settings(connection)).get_heads() == [HEAD]


def test_the_revisions_and_the_tables_make_the_same_schema(url, tmp_path):
    made = open_db(url)
    migrated = migrate_from_nothing(f"sqlite:///{tmp_path / 'migrated'}")
    assert differences(migrated) == []
    assert shape(made) == shape(migrated)


def test_the_comparison_would_see_a_difference(tmp_path):
    migrated = migrate_from_nothing(f"sqlite:///{tmp_path / 'migrated'}")
    with migrated.begin() as connection:
        connection.execute(text("DROP INDEX ix_ingest_outcomes_episode_id"))
        connection.execute(text("ALTER TABLE ingest_refusals DROP COLUMN detail"))
    assert len(differences(migrated)) == 2


NEXT = """
from alembic import op
import sqlalchemy as sa
revision, down_revision, branch_labels, depends_on = "9998", "{head}", None, None
def upgrade():
    with op.batch_alter_table("stream_leases") as leases:
        leases.add_column(sa.Column("why", sa.String(), nullable=True))
    {then}
"""


def test_an_older_database_is_brought_up_and_keeps_its_rows(url, tmp_path):
    engine = open_db(url)
    with writing(engine) as session:
        session.add(LeaseRow(name="kept", holder="h", fence=1, expires_ms=0))
    shutil.copytree(FOLDER, tmp_path / "newer")
    (tmp_path / "newer" / "versions" / "9998_why.py").write_text(NEXT.format(head=HEAD, then=""))
    with writing(engine) as session:
        upgrade(session.connection(), HEAD, tmp_path / "newer")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT name, why FROM stream_leases")).one() == ("kept", None)
        assert connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one() == "9998"


def test_a_revision_that_fails_leaves_the_database_as_it_was(url, tmp_path):
    engine = open_db(url)
    before = shape(engine)
    shutil.copytree(FOLDER, tmp_path / "newer")
    (tmp_path / "newer" / "versions" / "9998_why.py").write_text(NEXT.format(head=HEAD, then="raise RuntimeError"))
    with pytest.raises(RuntimeError), writing(engine) as session:
        upgrade(session.connection(), HEAD, tmp_path / "newer")
    assert shape(engine) == before
    open_db(url)


def test_a_database_of_a_newer_release_is_refused_in_one_sentence(url):
    with open_db(url).begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StartError, match="revision 9999, which this release does not know: a newer one made it"):
        open_db(url)


def test_a_database_from_before_migrations_is_refused_and_left_alone(url):
    engine = open_db(url)
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {VERSION_TABLE}"))
        connection.execute(text("DROP TABLE stream_leases"))
    before = shape(engine)
    with pytest.raises(StartError, match="made before there were migrations"):
        open_db(url)
    assert shape(engine) == before


def test_processes_that_start_at_once_agree(url):
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(3)
    processes = [spawn.Process(target=_open_together, args=(url, gate)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert differences(open_db(url)) == []


def test_opening_a_database_that_is_up_to_date_does_not_import_alembic(url):
    open_db(url)
    asked = f"import sys; from infra.db.engine import open_db; open_db({url!r}); sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False, cwd=FOLDER.parents[2]).returncode == 0


@pytest.mark.parametrize("wrong", ["mysql://h/d", "nonsense"])
def test_another_kind_of_database_is_refused_in_one_sentence(wrong):
    with pytest.raises(StartError, match="postgresql"):
        open_db(wrong)


def _open_together(url: str, gate) -> None:
    gate.wait()
    open_db(url)


def test_an_address_that_is_none_is_told_in_one_sentence():
    for url in ("postgresql://host:port/db", "nothing at all", "mysql://host/db"):
        with pytest.raises(StartError, match="SLIPSTREAM_DB_URL"):
            open_db(url)
