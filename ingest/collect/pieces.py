"""A body is cut into its events before any of them is judged, so that one that is no JSON harms nobody else.

Enters: bytes. Leaves: a `Piece` for each event, in order, parsed strictly: UTF-8, no NaN, no name twice, no control characters.
What can go wrong: `NotJson` when the body as a whole has no events that could be told apart, `TooLarge` when there are more of them
than a batch may have, or too many brackets, commas and strings in a body that is broken.

A good body is parsed in one go. Only when that fails are its elements found by their brackets and quotes, which takes no recursion
and one look at each character, and parsed one by one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ingest.collect.inflate import TooLarge

_MOST_MARKS = 2**20
"""Brackets, commas and strings that are looked at in a broken body; each costs far more than a byte of a good one."""

_BLANK = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)
_STRAY = re.compile("[\ud800-\udfff]")


class NotJson(ValueError):
    """Why a body, or a piece of it, is not JSON; never what was sent."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One event: its text as it was sent, its value, or why it has none."""

    text: str
    value: Any
    fault: str | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.text) if self.text.isascii() else len(self.text.encode("utf-8", "surrogateescape"))


def cut(body: bytes, batch: bool, most: int = sys.maxsize) -> list[Piece]:
    """The events of a list, or the one event that a body is. What follows the first `most` events is not looked at."""
    try:
        text = body.decode()
        return _elements(text, most) if batch else [_only(text)]
    except TooLarge:
        raise
    except (ValueError, RecursionError, StopIteration) as error:
        if not batch:
            raise NotJson(_reason(error)) from error
    return [_strictly(part) for part in _parts(body.decode("utf-8", "surrogateescape"), most)]


def _only(text: str) -> Piece:
    start = _past_blank(text, 0)
    value, end = _scan(text, start)
    if _past_blank(text, end) != len(text):
        raise NotJson("more follows its end")
    return Piece(text, value)


def _elements(text: str, most: int) -> list[Piece]:
    place = _past_blank(text, 0)
    if text[place : place + 1] != "[":
        raise NotJson("expected a list")
    found: list[Piece] = []
    place = _past_blank(text, place + 1)
    closed = text[place : place + 1] == "]"
    while not closed:
        if len(found) == most:
            raise _too_many(most)
        value, end = _scan(text, place)
        found.append(Piece(text[place:end], value))
        place = _past_blank(text, end)
        mark = text[place : place + 1]
        if mark not in (",", "]"):
            raise NotJson("expected , or ]")
        closed = mark == "]"
        place = place if closed else _past_blank(text, place + 1)
    if _past_blank(text, place + 1) != len(text):
        raise NotJson("more follows its end")
    return found


def _parts(text: str, most: int) -> Iterator[str]:
    """The texts between the commas of the outermost list."""
    start = _past_blank(text, 0)
    if text[start : start + 1] != "[":
        raise NotJson("a batch is a list of events")
    depth, place, end = 0, start + 1, None
    found = []
    for number, token in enumerate(_TOKEN.finditer(text, start)):
        if number == _MOST_MARKS:
            raise TooLarge("the body is not JSON, and has too much in it to find its events all the same")
        mark = token[0]
        if mark == '"':
            raise NotJson("a string has no end")
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
            if depth == 0:
                end = token.start()
                break
        elif mark == "," and depth == 1:
            found.append(text[place : token.start()])
            place = token.end()
            if len(found) == most:
                raise _too_many(most)
    if end is None or text[end] != "]" or _past_blank(text, end + 1) != len(text):
        raise NotJson("the list has no end, or more follows it")
    found.append(text[place:end])
    if not all(part.strip(" \t\n\r") for part in found):
        raise NotJson("an element of the list is empty")
    return iter(found)


def _too_many(most: int) -> TooLarge:
    return TooLarge(f"more than {most} events, the most that a batch may have")


def _strictly(part: str) -> Piece:
    text = part.strip(" \t\n\r")
    if _STRAY.search(text):
        return Piece(text, None, "not UTF-8")
    try:
        return _only(text)
    except (ValueError, RecursionError, StopIteration) as error:
        return Piece(text, None, _reason(error))


def _reason(error: Exception) -> str:
    """Never what was sent: it may be somebody's text."""
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, StopIteration):
        return f"expected a value at character {error.value}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, NotJson):
        return str(error)
    return f"a number has more than {sys.get_int_max_str_digits()} digits"


def _past_blank(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return place if found is None else found.end()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJson("a name stands twice in an object")
    return found


def _never(constant: str) -> Any:
    raise NotJson(f"{constant} is not JSON")


_scan = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_never).scan_once  # type: ignore[attr-defined]
