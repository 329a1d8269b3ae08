"""What the collector's OpenAPI says about `POST /v1/events`: what may be sent, and every answer there is.

The code reads its own body, for speed and because each event is judged by itself; this says in a schema what it does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from contracts import schema

ONE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"

_FATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": ["string", "null"], "description": "as it was sent; null where none could be read"},
        "status": {"enum": ["taken", "refused"]},
        "note": {
            "type": "string",
            "description": "taken, but not quite as it was told: a time that is none or far ahead, fields that were left out",
        },
        "code": {"enum": [400, 413, 422], "description": "malformed, too large, or wrong in a field"},
        "reason": {"type": "string", "description": "to count by"},
        "detail": {"type": "string", "description": "names the attribute and what was expected"},
    },
    "required": ["id", "status"],
    "additionalProperties": False,
}

_FATES: dict[str, Any] = {
    "type": "object",
    "properties": {"results": {"type": "array", "items": _FATE, "description": "in the order sent"}},
    "required": ["results"],
    "additionalProperties": False,
}

_ERROR: dict[str, Any] = {
    "type": "object",
    "properties": {"error": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}},
    "required": ["error"],
}

_RETRY = {"Retry-After": {"description": "seconds", "required": True, "schema": {"type": "integer", "minimum": 1}}}


def _answer(description: str, schema: dict[str, Any], headers: dict[str, Any] | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description, "content": {"application/json": {"schema": schema}}}
    return answer | ({"headers": headers} if headers else {})


_RESPONSES: dict[int, dict[str, Any]] = {
    202: _answer("All events are taken and durable.", _FATES),
    207: _answer("Durable; some events are refused, each for its own reason.", _FATES),
    400: _answer("No events could be told apart in the body; nothing was taken.", _ERROR),
    401: _answer("No key, or not a valid one.", _ERROR, {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}}),
    403: _answer("The key is for other things than sending events.", _ERROR),
    413: _answer("The body, inflated, or the number of its events is beyond the limit; nothing was taken.", _ERROR),
    415: _answer("Another content type, character set or content encoding than those named here.", _ERROR),
    429: _answer("The key has used up its rate; nothing was taken.", _ERROR, _RETRY),
    503: _answer("Neither log nor spool has room, or keys cannot be looked up; nothing was taken.", _ERROR, _RETRY),
}

EVENT_REF = {"$ref": "#/components/schemas/Event"}

EVENTS_PATH: dict[str, Any] = {
    "post": {
        "summary": "Tell what became of answers",
        "operationId": "tell_events",
        "requestBody": {
            "required": True,
            "description": "Each event is judged by itself. One that does not fit is refused with 207, its neighbours are taken. "
            "Only a field of data that this release does not know for its kind is left out instead, and a note says so.",
            "content": {ONE: {"schema": EVENT_REF}, BATCH: {"schema": {"type": "array", "items": EVENT_REF}}},
        },
        "parameters": [
            {
                "name": "Content-Encoding",
                "in": "header",
                "required": False,
                "schema": {"enum": ["identity", "gzip", "zstd"]},
            }
        ],
        "responses": {str(status): answer for status, answer in _RESPONSES.items()},
        "security": [{"key": []}, {}],
    }
}

SECURITY = {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "sk_<id>_<secret>, with the scope producer"}}


def components(policies: Collection[str]) -> dict[str, Any]:
    """The event is the released one, with the policies that there are here."""
    event = {name: value for name, value in schema.export()[schema.EVENT].items() if not name.startswith("$")}
    policy = {**event["properties"]["policy"], "enum": sorted(policies)}
    event["properties"] = {**event["properties"], "policy": policy}
    return {"schemas": {"Event": event}, "securitySchemes": SECURITY}
