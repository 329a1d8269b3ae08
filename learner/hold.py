"""Hold a policy's lease while working: a thread renews it, and the worker learns when it was lost.

Enters: a database and a policy. Leaves: a fence to check in every transaction that writes. When renewing fails for longer than
the lease lasts, another process may take over; what this one prepared is then refused by `lease.check`, however late it comes.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from contracts.errors import Fenced, Retry
from infra.clock import Clock, to_ms
from infra.db import lease
from infra.db.engine import writing
from infra.db.query import Engine, Session

logger = logging.getLogger(__name__)


class Hold:
    def __init__(self, name: str, fence: int) -> None:
        self.name = name
        self.fence = fence
        self.lost = threading.Event()

    def check(self, session: Session) -> None:
        """Raises `Fenced` inside the caller's transaction when somebody else took over."""
        lease.check(session, self.name, self.fence)


@contextmanager
def holding(engine: Engine, policy: str, clock: Clock, ttl_s: float) -> Iterator[Hold | None]:
    """None while another process works on the policy. Each hold is a new holder, so each has a fence of its own."""
    name = f"learner:{policy}"
    holder = uuid.uuid4().hex
    with writing(engine) as session:
        fence = lease.acquire(session, name, holder, to_ms(clock()), int(ttl_s * 1000))
    if fence is None:
        yield None
        return
    hold = Hold(name, fence)
    done = threading.Event()
    keeper = threading.Thread(target=_keep, args=(engine, hold, holder, clock, ttl_s, done), name=f"lease-{policy}", daemon=True)
    keeper.start()
    try:
        yield hold
    finally:
        done.set()
        keeper.join()
        try:
            with writing(engine) as session:
                lease.release(session, name, fence)
        except Retry as away:
            logger.warning("the lease of %s runs out by itself: %s", policy, away)


def _keep(engine: Engine, hold: Hold, holder: str, clock: Clock, ttl_s: float, done: threading.Event) -> None:
    while not done.wait(ttl_s / 3):
        try:
            with writing(engine) as session:
                hold.check(session)
                lease.acquire(session, hold.name, holder, to_ms(clock()), int(ttl_s * 1000))
        except Fenced as fenced:
            logger.warning("%s", fenced)
            hold.lost.set()
            return
        except Retry as away:
            logger.warning("could not renew the lease %s: %s", hold.name, away)
