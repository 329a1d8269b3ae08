"""The commands and their options. What they do lies in one file each, imported when it runs: `--help` is quick.

Enters: the command line. Leaves: an exit code: 0 done, 1 something is wrong, 2 cannot start, 130 interrupted. Goes wrong: one
sentence on standard error; the trace only with `--debug`.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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


Home = Annotated[Path | None, typer.Option(help="Folder that holds all state. [default: .slipstream]", show_default=False)]
PortBase = Annotated[
    int | None, typer.Option(help="Gateway's port; the next three follow it. [default: 8600]", show_default=False, metavar="N")
]


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


keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys with which programs come in.")
app.add_typer(keys, name="keys")


class KeyScope(StrEnum):
    PRODUCER = "producer"
    CLIENT = "client"
    OPERATOR = "operator"
    VIEWER = "viewer"


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Whose key it is, for people to read.")],
    scope: Annotated[list[KeyScope], typer.Option(help="What it is for; may be given several times.")],
    rate: Annotated[float | None, typer.Option(help="Events per second. [default: no limit]", show_default=False)] = None,
    home: Home = None,
) -> None:
    """Make a key and print it, this once. The first key of a deployment closes its doors to programs without one."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.keys import create

    raise typer.Exit(create(chosen_settings(home), name, scope, rate))


@keys.command("list")
def list_keys(home: Home = None, as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False) -> None:
    """The keys that were ever made; never the keys themselves."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.keys import show

    raise typer.Exit(show(chosen_settings(home), as_json))


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="As `keys list` shows it.")], home: Home = None) -> None:
    """Take a key back, for good. Every process refuses it within seconds."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.keys import revoke

    raise typer.Exit(revoke(chosen_settings(home), key_id))


subject = typer.Typer(no_args_is_help=True, help="What a person may ask for, by the name that clients send as X-Subject.")
app.add_typer(subject, name="subject")

PersonName = Annotated[str, typer.Argument(help="As clients send it in X-Subject; never stored.", show_default=False)]


@subject.command("export")
def export_subject(
    name: PersonName,
    to: Annotated[Path | None, typer.Option(help="File to write. [default: subject-<hash>.json]", show_default=False)] = None,
    home: Home = None,
) -> None:
    """Write everything that is stored of a person into one JSON file that only you can read."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.subject import export as run

    raise typer.Exit(run(chosen_settings(home), name, to))


@subject.command("delete")
def delete_subject(
    name: PersonName,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    home: Home = None,
) -> None:
    """Remove everything that is stored of a person, keep it away, and list the checkpoints it is in. Harmless when repeated."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.subject import delete as run

    raise typer.Exit(run(chosen_settings(home), name, as_json))


@subject.command("opt-out")
def opt_out(name: PersonName, home: Home = None) -> None:
    """From now on nothing of this person is recorded, whatever clients say. What is stored stays: see `delete`."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.subject import set_opted_out as run

    raise typer.Exit(run(chosen_settings(home), name, True))


@subject.command("opt-in")
def opt_in(name: PersonName, home: Home = None) -> None:
    """Take an opt-out back: what clients say about this person's consent counts again."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.subject import set_opted_out as run

    raise typer.Exit(run(chosen_settings(home), name, False))


@subject.command("rotate-key")
def rotate_key(
    forget_older_than: Annotated[
        float | None, typer.Option(min=0, help="Destroy keys out of use for so many days.", show_default=False, metavar="DAYS")
    ] = None,
    home: Home = None,
) -> None:
    """Hash people's names with a new key from now on. Older keys still find what is stored, until they are forgotten."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.subject import rotate_key as run

    raise typer.Exit(run(chosen_settings(home), forget_older_than))


dlq = typer.Typer(no_args_is_help=True, help="What could not be read: look at it, try it again.")
app.add_typer(dlq, name="dlq")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic it came from.")]
Number = Annotated[int, typer.Argument(metavar="PARTITION", min=0)]
Offset = Annotated[int, typer.Argument(metavar="OFFSET", min=0)]


@dlq.command("list")
def dlq_list(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Each dead letter of this topic, with its place.")] = None,
    home: Home = None,
) -> None:
    """How many dead letters each topic has, why, and the newest; or each one of a topic."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.dlq import list_buried

    raise typer.Exit(list_buried(chosen_settings(home), topic))


@dlq.command("show")
def dlq_show(topic: TopicName, partition: Number, offset: Offset, home: Home = None) -> None:
    """One dead letter: where it lay, what is wrong with it, and what it says."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.dlq import Place, show

    raise typer.Exit(show(chosen_settings(home), Place(topic, partition, offset)))


@dlq.command("retry")
def dlq_retry(
    place: Annotated[list[str] | None, typer.Argument(metavar="TOPIC PARTITION OFFSET", help="One of them.")] = None,
    topic: Annotated[str | None, typer.Option(help="All that came from this topic.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All there are.")] = False,
    home: Home = None,
) -> None:
    """Put the very bytes back on the topic they came from, each at most once."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.dlq import Place, retry

    chosen = None
    if place:
        if len(place) != 3 or not all(number.isdecimal() for number in place[1:]):
            raise typer.BadParameter("expected TOPIC PARTITION OFFSET, as `slipstream dlq list TOPIC` shows them")
        chosen = Place(place[0], int(place[1]), int(place[2]))
    raise typer.Exit(retry(chosen_settings(home), topic, everything, chosen))
