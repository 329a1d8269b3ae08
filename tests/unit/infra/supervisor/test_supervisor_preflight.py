"""Each thing that can be wrong before a start has one sentence: what is wrong, and what to do."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from contracts.errors import StartError
from infra.policies import shipped_policies
from infra.settings import Settings
from infra.supervisor import preflight
from infra.supervisor.lock import hold, holder
from infra.supervisor.state import Deployment, write_state


def _settings(home: Path, **changes: object) -> Settings:
    return Settings(home=home, **changes)  # type: ignore[arg-type]


@pytest.fixture
def one_policy(tmp_path: Path) -> Path:
    """The shipped demo policy with base weights that are there."""
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"x")
    folder = tmp_path / "policies" / "demo"
    folder.mkdir(parents=True)
    for inside in ("rewards", "rollouts"):
        (folder.parent / inside).symlink_to(shipped_policies(inside))
    text = (shipped_policies("demo") / "tab.yaml").read_text()
    (folder / "tab.yaml").write_text(text.replace("pkg://harness/tiny/weights", str(weights)))
    return folder


def test_a_sound_place_passes_and_keeps_nothing_of_the_checks(tmp_path, one_policy):
    settings = _settings(tmp_path / "home", policies=one_policy)
    preflight.check(settings)
    assert list((settings.home / "run").iterdir()) == []


def test_a_home_under_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(preflight.Problem) as problem:
        preflight.home_writable(_settings(tmp_path / "file" / "home"))
    assert problem.value.wrong == f"{tmp_path}/file/home cannot be made: a part of this path is a file"
    assert "--home" in problem.value.mend
    with pytest.raises(StartError, match=r"--home"), hold(tmp_path / "file" / "home"):
        pass


def test_a_home_where_nobody_can_write():
    with pytest.raises(preflight.Problem, match=r"^/proc/slipstream .*--home"):
        preflight.home_writable(_settings(Path("/proc/slipstream")))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "is full; make room or choose another folder"),
        (errno.EDQUOT, "is full; make room"),
        (errno.EROFS, "read-only; choose another folder"),
        (errno.EACCES, "may not be written by this user; change its owner or mode"),
        (errno.EIO, "cannot be written: Input/output error; choose"),
    ],
)
def test_what_the_system_says_becomes_a_sentence(code, words):
    assert words in str(preflight.cannot_write(Path("/home"), OSError(code, os.strerror(code))))


def test_too_little_room(tmp_path):
    with pytest.raises(preflight.Problem, match=r"MB free and 1000000000000 MB are needed; make room"):
        preflight.disk_space(_settings(tmp_path), needs_mb=1e12)
    assert preflight.disk_space(_settings(tmp_path), needs_mb=0.0).endswith("GB free")


def test_a_place_where_sqlite_cannot_work(tmp_path):
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(preflight.Problem, match=r"SQLite cannot work in .*local disk with --home"):
        preflight.sqlite_locks(_settings(tmp_path))


def test_an_unreadable_policy_names_file_and_field(tmp_path, one_policy):
    file = one_policy / "tab.yaml"
    file.write_text(re.sub(r"cycle_samples: \d+", "cycle_samples: many", file.read_text()))
    with pytest.raises(StartError, match=rf"^{file}: learner\.cycle_samples: "):
        preflight.check(_settings(tmp_path / "home", policies=one_policy))


def test_missing_base_weights(tmp_path, one_policy):
    (tmp_path / "weights" / "model.safetensors").unlink()
    with pytest.raises(preflight.Problem, match=r"base weights of policy tab are missing: .*/weights .*tab\.yaml"):
        preflight.check(_settings(tmp_path / "home", policies=one_policy))


def test_the_lock_belongs_to_one_and_is_free_afterwards(tmp_path):
    assert holder(tmp_path) is None
    with hold(tmp_path):
        assert holder(tmp_path) == os.getpid()
        said = rf"runs already in {tmp_path} \(process {os.getpid()}\); stop it with"
        with pytest.raises(StartError, match=said), hold(tmp_path):
            pass
    assert holder(tmp_path) is None


def test_a_folder_that_was_moved_says_where_it_was_and_how_to_heal_it(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "run").mkdir(parents=True)
    now = {"kind": "up", "pid": 1, "create_time": 0.0, "since": 0.0, "updated": 0.0, "ports": {}, "addresses": {}}
    write_state(Deployment.model_validate(now | {"home": str(old)}))
    old.rename(new)
    assert preflight.same_place(_settings(new)), "nothing was sealed yet"
    (new / "artifacts").mkdir()
    with pytest.raises(preflight.Problem) as problem:
        preflight.same_place(_settings(new))
    assert str(old) in problem.value.wrong and problem.value.mend.endswith(f"ln -s {new} {old}")
    assert preflight.same_place(_settings(new, artifacts=tmp_path / "elsewhere"))
    old.symlink_to(new)
    assert preflight.same_place(_settings(new))
