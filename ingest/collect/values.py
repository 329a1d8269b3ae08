"""What may stand in the data of a kind that this version does not know, and so cannot check field by field.

Enters: a parsed value. Leaves: None, or one sentence about the first thing that could not be stored and read again as it is.
"""

from __future__ import annotations

import math
from typing import Any

DEEPEST = 32
LARGEST = 2**63


def unfit(value: Any, depth: int = 0) -> str | None:
    if isinstance(value, str):
        return None if is_text(value) else "a string is not Unicode text"
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return None if -LARGEST <= value < LARGEST else "a number has more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "a number is too large"
    if depth >= DEEPEST:
        return f"nested deeper than {DEEPEST}"
    if isinstance(value, dict):
        if not all(map(is_text, value)):
            return "a name is not Unicode text"
        value = value.values()
    return next((fault for one in value if (fault := unfit(one, depth + 1)) is not None), None)


def is_text(text: str) -> bool:
    """No half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
