"""What a person may be called.

Enters: what a client sends as `X-Subject`, or somebody types. Leaves: the same. What can go wrong: `StartError`; nobody of that
name can have been stored.
"""

from __future__ import annotations

from contracts.errors import StartError

LONGEST = 512
"""Characters, as the gateway takes them."""


def checked(name: str) -> str:
    if not 0 < len(name) <= LONGEST:
        raise StartError(f"a person's name is 1 to {LONGEST} characters, as clients send it in X-Subject; this one has {len(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise StartError("a person's name is text, as clients send it in X-Subject; this one has bytes that are none") from None
    return name
