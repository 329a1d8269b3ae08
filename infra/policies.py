"""Read the policies: one YAML file each, with the reward spec and the rollout plan it names.

Enters: a folder. Leaves: `Policy` values by name. What can go wrong: `StartError` that names the file and the field.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from contracts.errors import StartError, UnknownName
from contracts.policy import Policy
from contracts.record import first_fault
from infra.settings import Settings

_SHIPPED = Path(__file__).resolve().parent.parent / "policies"
_POINTERS = ("reward", "rollout")


def policy_folder(settings: Settings) -> Path:
    """The folder asked for, else ./policies, else the one shipped with the distribution."""
    if settings.policies is not None:
        return settings.policies
    here = Path("policies")
    return here if here.is_dir() else _SHIPPED


def shipped_policies(name: str) -> Path:
    """A folder of policies that comes with the distribution, such as `demo`."""
    return _SHIPPED / name


def load_policies(settings: Settings) -> dict[str, Policy]:
    """All policies of the folder, or those that `SLIPSTREAM_ONLY` names."""
    folder = policy_folder(settings)
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise StartError(f"no policy file (*.yaml) in {folder}; set SLIPSTREAM_POLICIES to the folder that has them")
    wanted = settings.only.split(",") if settings.only else [file.stem for file in files]
    known = {file.stem: file for file in files}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise UnknownName(f"no policy is called {missing[0]!r} in {folder}; there are: {', '.join(sorted(known))}")
    return {name: load_policy(known[name]) for name in wanted}


def load_policy(file: Path) -> Policy:
    content = _read(file)
    for field in _POINTERS:
        if isinstance(content.get(field), str):
            content[field] = _read(file.parent / content[field], named_by=f"{file}: {field}")
    try:
        policy = Policy.model_validate(content)
    except ValidationError as error:
        raise StartError(f"{file}: {first_fault(error)}") from error
    if policy.name != file.stem:
        raise StartError(f"{file}: name: expected {file.stem!r}, as the file is called, got {policy.name!r}")
    return policy


def _read(file: Path, named_by: str = "") -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"{named_by or file}: cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise StartError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise StartError(f"{file}: expected a mapping, got {type(content).__name__}")
    return content


def base_folder(base: str) -> Path:
    """Where base weights lie: a folder, or `pkg://package/folder` inside an installed distribution (not imported)."""
    if not base.startswith("pkg://"):
        return Path(base)
    package, _, inside = base.removeprefix("pkg://").partition("/")
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise StartError(f"base weights {base}: the package {package!r} is not installed here")
    return Path(places[0]) / inside
