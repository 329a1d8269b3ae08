"""The commands that come in groups: `slipstream keys`, `subject` and `dlq`.

Enters: the command line. Leaves: an exit code, as in `main`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from infra.cli.options import Home

keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys with which programs tell events.")


SCOPES = "producer: to tell events. Nothing asks for the others yet. May be given several times."


class KeyScope(StrEnum):
    PRODUCER = "producer"
    CLIENT = "client"
    OPERATOR = "operator"
    VIEWER = "viewer"


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Whose key it is, for people to read.")],
    scope: Annotated[list[KeyScope], typer.Option(help=SCOPES)],
    rate: Annotated[float | None, typer.Option(help="Events per second. [default: no limit]", show_default=False)] = None,
    home: Home = None,
) -> None:
    """Make a key and print it, this once. From the first key of a deployment on, the collector takes events only with one."""
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
    """Put the very bytes back on the topic they came from, each at most once. Name one place, or one --topic, or --all."""
    from infra.cli.chosen import chosen_settings
    from infra.cli.dlq import Place, retry

    chosen = None
    if place:
        if len(place) != 3 or not all(number.isdecimal() for number in place[1:]):
            raise typer.BadParameter("expected TOPIC PARTITION OFFSET, as `slipstream dlq list TOPIC` shows them")
        chosen = Place(place[0], int(place[1]), int(place[2]))
    raise typer.Exit(retry(chosen_settings(home), topic, everything, chosen))


GROUPS = {"keys": keys, "subject": subject, "dlq": dlq}
