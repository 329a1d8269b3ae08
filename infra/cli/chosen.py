"""Settings as the command line and the environment choose them; the command line wins.

Enters: options, None where one was not given. Leaves: settings. Goes wrong: `StartError` that names what makes no sense, or
says that nothing is where somebody wants to look.
"""

from __future__ import annotations

import os
from pathlib import Path

from contracts.errors import StartError
from infra.cli.status import running_home
from infra.secrets import KEYS
from infra.settings import Settings, load_settings
from infra.supervisor import table
from infra.supervisor.lock import holder
from infra.supervisor.state import read_state


def chosen_settings(
    home: Path | None, port_base: int | None = None, policies: Path | None = None, only: str | None = None
) -> Settings:
    """The choice is put into the environment, from which every process reads the same."""
    chosen = {"HOME": home, "PORT_BASE": port_base, "POLICIES": policies, "ONLY": only}
    for name, value in chosen.items():
        if value is not None:
            os.environ[f"SLIPSTREAM_{name}"] = str(value)
    return load_settings()


def as_it_runs(settings: Settings) -> Settings:
    """With the folders, ports and policies of what runs, where something does.

    Where that has its log or database elsewhere than these settings say, they would read and write another service's: `StartError`.
    """
    home = running_home(settings.home)
    state = read_state(home)
    if holder(home) is None or state is None:
        return settings
    policies = settings.policies if state.policies is None else Path(state.policies)
    port_base = state.ports.get("gateway", settings.port_base)
    found = settings.model_copy(update={"home": home, "policies": policies, "only": state.only, "port_base": port_base})
    here = table.stores(found)
    for variable, there in state.stores.items():
        if here.get(variable) != there:
            raise StartError(
                f"what runs in {home} has {variable}={there}; set it here too, or this would work on {here.get(variable)}"
            )
    return found


def deployed(settings: Settings, with_names: bool = False) -> Settings:
    """As it runs or ran. Looking for something must not make a deployment: `StartError` where there never was one.

    `with_names`: people's names are to be hashed, for which the keys must be those of the deployment.
    """
    found = as_it_runs(settings)
    no_rows = found.db_url is None and not (found.home / "slipstream.db").exists()
    no_keys = with_names and not os.environ.get(KEYS) and not (found.home / "secrets.json").exists()
    if no_rows or no_keys:
        demo = found.home / "demo"
        hint = f", for example {demo}" if (demo / "slipstream.db").exists() else ""
        raise StartError(f"nothing has ever run in {found.home}; name the folder of the deployment with --home{hint}")
    return found
