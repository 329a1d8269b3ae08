"""Token arrays, packed: base64 of little-endian uint32 ids or float32 log-probs instead of JSON lists.

In Python they are plain tuples. On the wire 100 ids take 536 characters; a JSON list of the same log-probs takes about 2,000.
A float is rounded to float32 when the record is made, so a record equals itself after a round trip. NaN and infinities survive
packing on purpose: whoever trains must see them and refuse (`learner.admit`).
"""

from __future__ import annotations

import base64
import binascii
import sys
from array import array
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_SWAP = sys.byteorder == "big"


def _pack(code: str, values: Iterable[float]) -> str:
    packed = array(code, values)
    if _SWAP:
        packed.byteswap()
    return base64.b64encode(packed.tobytes()).decode()


def _unpack(code: str, value: Any) -> Any:
    if not isinstance(value, str):
        return tuple(array(code, value)) if isinstance(value, (list, tuple)) else value
    try:
        packed = array(code)
        packed.frombytes(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"expected base64 of little-endian 4-byte items ({error})") from error
    if _SWAP:
        packed.byteswap()
    return tuple(packed)


def _ids(value: Any) -> Any:
    try:
        return _unpack("I", value)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"expected token ids from 0 to 2**32 - 1 ({error})") from error


def _floats(value: Any) -> Any:
    try:
        return _unpack("f", value)
    except TypeError as error:
        raise ValueError(f"expected numbers, and no gaps ({error})") from error


def _schema(item: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "contentEncoding": "base64", "description": f"packed little-endian {item}"})


TokenIds = Annotated[
    tuple[int, ...],
    BeforeValidator(_ids),
    PlainSerializer(lambda ids: _pack("I", ids), return_type=str, when_used="json"),
    _schema("uint32"),
]
LogProbs = Annotated[
    tuple[float, ...],
    BeforeValidator(_floats),
    PlainSerializer(lambda logps: _pack("f", logps), return_type=str, when_used="json"),
    _schema("float32"),
]
