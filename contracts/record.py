"""What all records have in common: frozen, closed to unknown fields, UTC, strict JSON.

Enters: keyword arguments or JSON bytes. Leaves: an immutable value. A wrong field raises pydantic's ValidationError, which
names the field and what was expected; `decode` turns it into `Poison` for callers that read from a log.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from contracts.errors import Poison


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("expected a moment between the years 1 and 9999, in UTC") from None


Moment = Annotated[AwareDatetime, AfterValidator(_to_utc)]
"""A point in time. Naive times are refused, other offsets are converted, so that windows never shift by an offset."""

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]*$")]
"""An identifier that is safe in a topic key, a file name, a header and a metric label."""

Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False, description="share, from 0 to 1")]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Record(BaseModel):
    """Base of everything that travels."""

    # Errors end up in logs; what somebody wrote does not.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null", hide_input_in_errors=True)

    def encode(self) -> bytes:
        return self.model_dump_json().encode()

    @classmethod
    def decode(cls, value: bytes | str) -> Self:
        """Parse JSON; raises `Poison` with the first field at fault, never anything else."""
        try:
            return cls.model_validate_json(value)
        except ValidationError as error:
            raise Poison(f"malformed_{cls.__name__.lower()}", first_fault(error)) from error


def first_fault(error: ValidationError) -> str:
    """One sentence: the field, what was expected, and how many more faults there are."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    where = ".".join(str(part) for part in faults[0]["loc"]) or "the whole record"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{where}: {faults[0]['msg']}{more}"
