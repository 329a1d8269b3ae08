"""An error becomes one sentence, for every command in the same way.

Enters: the command line. Leaves: exit code 2 for what `StartError` and its kin say, 1 for what nobody foresaw, 130 for Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from contracts.errors import SlipstreamError

DEBUG = "--debug"


class OneSentence(TyperGroup):
    """`--debug` may stand anywhere on the command line."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        if DEBUG in given:
            given = [DEBUG, *(word for word in given if word != DEBUG)]
        return super().main(given, *rest, **named)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (SlipstreamError, OSError) as error:
            if ctx.params.get("debug") or isinstance(error, BrokenPipeError):
                raise
            say(str(error))
            ctx.exit(2)
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:
            # Wrong usage and `Exit` carry their exit code and are the parser's business.
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort) or ctx.params.get("debug"):
                raise
            say(f"something unforeseen happened ({type(error).__name__}: {error}); run it again with {DEBUG} to see where")
            ctx.exit(1)


def say(sentence: str) -> None:
    print(f"slipstream: {sentence}", file=sys.stderr)
