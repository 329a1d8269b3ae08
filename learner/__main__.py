"""`python -m learner worker | beat | bootstrap | import POLICY FOLDER`.

`worker` runs cycles, `beat` says when to look, `bootstrap` seals each policy's base weights as version 0 (a worker does so
itself when it starts), `import` seals weights made elsewhere as a policy's next version, which then has to pass its gates like
any other, and prints its name.
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.errors import Retry, StartError, UnknownName
from contracts.policy import Policy
from infra.policies import load_policies
from infra.process import run_process
from infra.settings import Settings, load
from learner.config import LearnerConfig

if TYPE_CHECKING:
    from learner.loop import Learner

_USAGE = "expected: python -m learner worker | beat | bootstrap | import POLICY FOLDER"


def main(settings: Settings, stop: threading.Event) -> None:
    config = load(LearnerConfig)
    policies = load_policies(settings)
    match sys.argv[1:]:
        case ["worker"]:
            from learner.jobs import work

            learner = _bootstrapped(settings, config, policies, stop)
            _check_plugins(policies)
            work(settings, learner)
        case ["beat"]:
            from learner.jobs import beat

            beat(settings, config, policies)
        case ["bootstrap"]:
            _bootstrapped(settings, config, policies, stop)
        case ["import", name, folder]:
            if name not in policies:
                raise UnknownName(f"no policy is called {name!r}; there are: {', '.join(sorted(policies))}")
            _log_to_standard_error()
            print(_learner(settings, config, policies, stop).bring(policies[name], Path(folder)))
        case _:
            raise StartError(_USAGE)


def _learner(settings: Settings, config: LearnerConfig, policies: dict[str, Policy], stop: threading.Event) -> Learner:
    from infra.clock import system_clock
    from infra.db.engine import open_db
    from infra.eventlog.open import open_log
    from infra.tracking import Tracking
    from learner.loop import Learner
    from learner.publish import Publisher
    from learner.surroundings import Surroundings

    engine = open_db(settings.database)
    around = Surroundings(engine, settings.artifact_root, config, system_clock, stop)
    publisher = Publisher(engine, Tracking(settings), system_clock, config.publish_seconds)
    return Learner(around, policies, open_log(settings), publisher)


def _bootstrapped(settings: Settings, config: LearnerConfig, policies: dict[str, Policy], stop: threading.Event) -> Learner:
    from infra.stream import patiently

    learner = _learner(settings, config, policies, stop)
    for policy in policies.values():
        for attempt in patiently(stop):
            with attempt:
                if not learner.bootstrap(policy):
                    raise Retry(f"another process works on {policy.name}")
                learner.tell()
    return learner


def _check_plugins(policies: dict[str, Policy]) -> None:
    """A misspelt loss should end the process at its start, not a cycle hours later."""
    from learner.advantages import ADVANTAGES
    from learner.losses import LOSSES
    from learner.plugins import build

    for policy in policies.values():
        build(LOSSES, policy.learner.loss, policy.name)
        build(ADVANTAGES, policy.learner.advantage, policy.name)


def _log_to_standard_error() -> None:
    """Standard output ends with the answer."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)


if __name__ == "__main__":
    run_process("learner", main)
