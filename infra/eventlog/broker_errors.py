"""What kafka-python's errors mean for a stage.

Enters: an exception of the client. Leaves: `Retry` when the broker is away or busy, `UnknownName` for a topic that is not
there, `StartError` when it will never let this process in, `Poison` for a record larger than it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors

from contracts.errors import Poison, Retry, SlipstreamError, StartError, UnknownName

REFUSED = (
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IncompatibleBrokerVersion,
    errors.KafkaConfigurationError,
)
TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
LOST_PLACE = (
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
    errors.UnknownMemberIdError,
    errors.FencedInstanceIdError,
)
"""The group went on without this member, or is about to."""


@contextmanager
def explained(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except errors.KafkaError as error:
        raise explain(error, bootstrap) from error


def explain(error: errors.KafkaError, bootstrap: str) -> SlipstreamError:
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return UnknownName(f"Kafka at {bootstrap} does not know the topic: {error}")
    if isinstance(error, TOO_LARGE):
        return Poison("too_large", f"Kafka at {bootstrap} does not take a record of this size: {error}")
    if isinstance(error, REFUSED):
        return StartError(f"Kafka at {bootstrap} does not let this process in: {error}")
    return Retry(f"Kafka at {bootstrap} did not answer as it should: {error}")
