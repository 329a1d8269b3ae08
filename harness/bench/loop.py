"""The bench's process: waits for checkpoints, runs the suites of their policy, publishes a report for each.

A version that does not answer is reported as an error, which never promotes. A checkpoint is done when its reports lie in the log;
a crash before that runs them again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time

from contracts.checkpoint import Checkpoint, EvalReport, Metric
from contracts.errors import Poison
from contracts.policy import Policy
from contracts.policy import Suite as SuiteChoice
from contracts.topics import CHECKPOINTS, EVALUATIONS
from harness.bench.suite import SUITES
from harness.developers.gateway import Addresses, Client, Unanswered, open_session
from infra.clock import system_clock
from infra.eventlog.open import open_log
from infra.eventlog.port import Entry, EventLog, Message
from infra.policies import load_policies
from infra.settings import Settings

logger = logging.getLogger(__name__)
_WAIT_S = 0.25


def addresses(settings: Settings) -> Addresses:
    base = f"http://{settings.host}"
    return Addresses(f"{base}:{settings.gateway_port}", f"{base}:{settings.collector_port}", f"{base}:{settings.console_port}")


def bench(settings: Settings, stop: threading.Event) -> None:
    policies = load_policies(settings)
    log = open_log(settings)
    log.ensure([CHECKPOINTS, EVALUATIONS])
    consumer = log.consumer("bench", [CHECKPOINTS.name])
    try:
        while not stop.is_set():
            for message in consumer.poll(0.5, most=1):
                checkpoint = _read(message)
                policy = policies.get(checkpoint.policy) if checkpoint else None
                if checkpoint is not None and policy is not None and checkpoint.number > 0:
                    _judge(log, addresses(settings), policy, checkpoint, stop)
                consumer.commit({message.place: message.offset + 1})
    finally:
        consumer.close()
        log.close()


def _read(message: Message) -> Checkpoint | None:
    try:
        return Checkpoint.decode(message.value)
    except Poison as poison:
        logger.error("passed over checkpoint message %d: %s", message.offset, poison)
        return None


def _judge(log: EventLog, where: Addresses, policy: Policy, checkpoint: Checkpoint, stop: threading.Event) -> None:
    for choice in policy.bench:
        report = asyncio.run(_run(where, policy, choice, checkpoint, stop))
        log.append(EVALUATIONS.name, [Entry(report.policy, report.encode())])
        logger.info("%s on %s: %s", choice.name, checkpoint.version, report.error or report.metrics)


async def _run(where: Addresses, policy: Policy, choice: SuiteChoice, checkpoint: Checkpoint, stop: threading.Event) -> EvalReport:
    metrics: tuple[Metric, ...] = ()
    error = None
    async with open_session() as session:
        client = Client(where, session)
        try:
            await _until_it_answers(client, policy, checkpoint.version, stop)
            metrics = await SUITES.get(choice.name)(**choice.options).run(client, policy.name, checkpoint.version)
        except Unanswered as unanswered:
            error = str(unanswered)
    return EvalReport(
        version=checkpoint.version,
        policy=policy.name,
        suite=choice.name,
        metrics=metrics,
        error=error,
        created_at=system_clock(),
    )


async def _until_it_answers(client: Client, policy: Policy, version: str, stop: threading.Event) -> None:
    """A gateway may still be fetching the version; give it a quarter of the time that the plan gives the bench."""
    until = time.monotonic() + policy.rollout.bench_seconds / 4
    while True:
        try:
            await client.complete(policy.name, "import ", {"X-Policy-Version": version, "X-Consent": "false"})
            return
        except Unanswered:
            if stop.is_set() or time.monotonic() > until:
                raise
            await asyncio.sleep(_WAIT_S)
