"""What could not be read from a topic, kept with its place and the reason until somebody looks (`slipstream dlq`)."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from contracts.record import Moment, Record


def _unpack(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"expected base64 ({error})") from error


Packed = Annotated[
    bytes,
    BeforeValidator(_unpack),
    PlainSerializer(lambda value: base64.b64encode(value).decode(), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]


class DeadLetter(Record):
    """`value` holds the very bytes, so that they can be put back as they were. `reason` is a code to count by."""

    topic: str
    partition: Annotated[int, Field(ge=0)]
    offset: Annotated[int, Field(ge=0)]
    key: str | None
    reason: str
    detail: str
    value: Packed
    at: Moment
