"""`slipstream demo`: the service in the background of this process, the simulated developers in the foreground of the terminal.

Enters: settings, the model, the driver's arguments. Leaves: the driver's exit code. Goes wrong: `StartError` with one sentence;
after Ctrl-C everything is stopped and the same command goes on.
"""

from __future__ import annotations

from rich.console import Console
from rich.status import Status

from infra.cli.room import make_room
from infra.cli.sentences import say
from infra.cli.view import age
from infra.policies import policy_folder, shipped_policies
from infra.settings import Settings
from infra.supervisor import preflight, table
from infra.supervisor.environment import child_environment
from infra.supervisor.lock import hold
from infra.supervisor.orphans import end, find_orphans
from infra.supervisor.run import Plan, supervise
from infra.supervisor.state import Deployment, Life

PATIENCE = 8
"""Deaths before readiness; about a quarter of a minute."""

PRESENTATION = frozenset({"--no-page"})
"""Arguments that make no other demo."""

POLICIES = {"tiny": "tab", "smollm2": "smollm2"}


def demo(settings: Settings, model: str, quick: bool, arguments: tuple[str, ...]) -> int:
    settings = demo_settings(settings, model, quick)
    preflight.home_writable(settings)
    with hold(settings.home):
        # Everything that may refuse comes before anything of an earlier demo goes.
        preflight.check(settings)
        end(list(find_orphans(settings.home)))
        preflight.require(settings.host, table.ports(settings))
        make_room(settings.home, " ".join((model, *(argument for argument in arguments if argument not in PRESENTATION))))
    programs = table.programs(settings)
    plan = Plan(
        kind="demo",
        home=settings.home,
        programs=(*programs, table.driver(arguments, after=programs)),
        environment=child_environment(settings),
        ports=table.ports(settings),
        addresses=table.addresses(settings),
        stores=table.stores(settings),
        policies=policy_folder(settings).resolve(),
        only=settings.only,
        host=settings.host,
        patience=PATIENCE,
    )
    with Waiting(Console(stderr=True)) as view:
        ending = supervise(plan, view)
    if ending.code == 130:
        say("stopped; run the same command to go on")
    elif ending.sentence:
        say(ending.sentence)
    return ending.code


def demo_settings(settings: Settings, model: str, quick: bool = False) -> Settings:
    """Its state lies in a folder of its own beside that of `slipstream up`, and it runs one policy."""
    policies = shipped_policies("quick" if quick else "demo")
    return settings.model_copy(update={"home": settings.home / "demo", "policies": policies, "only": POLICIES[model]})


class Waiting:
    """Says what is waited for until the driver takes the terminal; then nothing more."""

    def __init__(self, console: Console) -> None:
        self._status = Status("Starting", console=console)
        self._quiet = False

    def __enter__(self) -> Waiting:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def show(self, deployment: Deployment) -> None:
        services = [process for process in deployment.processes if process.name != "driver"]
        driver_runs = any(process.pid is not None for process in deployment.processes if process not in services)
        if driver_runs or deployment.ending is not None:
            self._quiet = True
            self._status.stop()
        if not self._quiet:
            waiting = [process.name for process in services if process.life is not Life.READY]
            troubled = [f"{process.name} {process.says}" for process in services if process.life is Life.BACKOFF]
            words = "; ".join([f"Starting {', '.join(waiting)} ({age(deployment.updated - deployment.since)})", *troubled])
            self._status.update(words.replace("[", "\\["))
