"""The commands and their options; `keys`, `subject` and `dlq` are in `groups`. What they do lies in one file each, imported when it
runs: `--help` is quick.

Enters: the command line. Leaves: an exit code: 0 done, 1 something is wrong, 2 cannot start, 130 interrupted. Goes wrong: one
sentence on standard error; the trace only with `--debug`.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from infra.cli import groups
from infra.cli.options import Home, PortBase
from infra.cli.sentences import OneSentence

app = typer.Typer(
    cls=OneSentence,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Online reinforcement learning for a coding assistant, from production traffic, behind canary gates.",
)


class DemoModel(StrEnum):
    TINY = "tiny"
    SMOLLM2 = "smollm2"


@app.callback()
def options(
    context: typer.Context, debug: Annotated[bool, typer.Option("--debug", help="Show the trace of an error.")] = False
) -> None:
    if context.invoked_subcommand != "schema":  # what that writes is for everybody
        os.umask(0o077)


@app.command()
def up(
    home: Home = None,
    port_base: PortBase = None,
    policies: Annotated[Path | None, typer.Option(help="Folder of policy files.", show_default=False)] = None,
    only: Annotated[str | None, typer.Option(help="Policies to run: a,b", show_default=False)] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Go to the background once everything runs.")] = False,
) -> None:
    """Run the whole service on this machine. What an earlier run left in the folder goes on."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.up import up as run

    raise typer.Exit(run(chosen_settings(home, port_base, policies, only), detach))


@app.command()
def demo(
    model: Annotated[DemoModel, typer.Option(help="The model that learns.")] = DemoModel.TINY,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    cycles: Annotated[int | None, typer.Option(min=1, help="Learner cycles.", show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A short one: little traffic, small tables.")] = False,
    no_page: Annotated[bool, typer.Option("--no-page", help="No page beside the terminal.")] = False,
    home: Home = None,
    port_base: PortBase = None,
) -> None:
    """Watch simulated developers teach a small model, a canary let it in, and a bad checkpoint thrown out. About 5 minutes."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.demo import demo as run

    flags = (*(("--quick",) if quick else ()), *(("--no-page",) if no_page else ()))
    numbers = ("--seed", str(seed), *(("--cycles", str(cycles)) if cycles is not None else ()))
    raise typer.Exit(run(chosen_settings(home, port_base), model.value, quick, (*numbers, *flags)))


@app.command()
def status(
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """What runs, and how it does. Exit code 1 when nothing runs or something is not ready."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.status import status as run

    raise typer.Exit(run(chosen_settings(home), as_json))


@app.command()
def doctor(home: Home = None, port_base: PortBase = None) -> None:
    """Look for problems here and in what runs, and say how to mend them. Exit code 1 when there are any."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.doctor import doctor as run

    raise typer.Exit(run(chosen_settings(home, port_base)))


@app.command()
def down(home: Home = None) -> None:
    """Stop everything that runs in the folder, the demo's included."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.down import down as run

    raise typer.Exit(run(chosen_settings(home)))


@app.command()
def replay(
    source: Annotated[str, typer.Argument(help="Whose recording it is: cups, rhe_chat, or one that a package adds.")],
    file: Annotated[Path, typer.Argument(help="JSON lines.")],
    policy: Annotated[str | None, typer.Option(help="Policy to tell. [default: SOURCE]", show_default=False)] = None,
    speed: Annotated[float, typer.Option(min=0, help="Times as fast as recorded; 0: as fast as possible.")] = 1000.0,
    longest_pause: Annotated[
        float | None, typer.Option(min=0, help="Recorded seconds at which a pause is cut off.", show_default=False)
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds, at most, for everything to be joined.")] = 120.0,
    anew: Annotated[bool, typer.Option("--anew", help="From the first line, not where an interrupted run stopped.")] = False,
    home: Home = None,
    port_base: PortBase = None,
) -> None:
    """Send recorded traffic through the running service, and show what it made of it. Harmless when repeated."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.replay import replay as run

    pauses = () if longest_pause is None else ("--longest-pause", str(longest_pause))
    named = () if policy is None else ("--policy", policy)
    flags = ("--speed", str(speed), "--wait", str(wait), *pauses, *named, *(("--anew",) if anew else ()))
    raise typer.Exit(run(chosen_settings(home, port_base), (*flags, "--", source, str(file))))


@app.command()
def schema(
    name: Annotated[str | None, typer.Argument(help="Print this one.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="Write all of them into this folder.", show_default=False)] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 when a released schema is broken.")] = False,
) -> None:
    """The JSON Schemas of records, events and policy files."""
    from infra.cli.schema import show

    raise typer.Exit(show(name, out, check))


for name, group in groups.GROUPS.items():
    app.add_typer(group, name=name)
