"""Tells a Slipstream collector what people did with an answer. Start at `Client`; `docs/producers.md` is the guide."""

from slipstream_events.client import AsyncClient, Client
from slipstream_events.event import About, Refused, new_id, stable_id
from slipstream_events.limits import Limits
from slipstream_events.tally import Stats

__all__ = ["About", "AsyncClient", "Client", "Limits", "Refused", "Stats", "new_id", "stable_id"]
