"""A log of announcements in a Kafka topic, in the place of the numbered files of a zone.

A topic may serve many zones: a zone reads the messages with its id as their key, of one partition, which
stays the same when the topic gets more of them. Kafka promises at least once, which is enough: announcing a
file again changes nothing. Plans stay in the zone, where a planner that was left behind finds its entry taken
(R26).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from streaming_sink.zones.zone_options import parse_kafka
from timeline.errors import StoreUnavailableError

_LOG = logging.getLogger("streaming_sink")
_SECONDS = 20.0
_POLL_SECONDS = 0.5


class KafkaLog:
    """The announcements of one zone in a topic. The number of an entry is its offset and one, so that numbers
    count from 1, with gaps. Not safe for concurrent use by threads.
    """

    def __init__(self, url: str, zone_id: str, settings: Mapping[str, str] | None = None) -> None:
        self._servers, self._topic, self._partition = parse_kafka(url)
        self._key = zone_id.encode()
        self._settings = {"bootstrap.servers": self._servers, **(settings or {})}
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def path(self, number: int) -> str:
        """Return how errors name an entry."""
        return f"kafka://{self._servers}/{self._topic}, offset {number - 1}"

    def append(self, data: bytes) -> int:
        """Append an entry, durable on all in-sync replicas once this returns, and return its number.

        StoreUnavailableError where the broker does not acknowledge it in time: it may be there all the same.
        """
        if self._producer is None:
            quiet = {"acks": "all", "enable.idempotence": True, "log_level": 0}
            self._producer = Producer({**self._settings, **quiet, "message.timeout.ms": int(_SECONDS * 1000)})
        acknowledged: list[int] = []
        failed: list[str] = []

        def note(error: object, message: object) -> None:
            if error is None:
                acknowledged.append(message.offset())  # type: ignore[attr-defined]
            else:
                failed.append(str(error))

        self._producer.produce(self._topic, data, self._key, partition=self._partition, on_delivery=note)
        self._producer.flush(_SECONDS)
        if not acknowledged:
            raise self._unavailable(failed[0] if failed else "no answer in time")
        return acknowledged[0] + 1

    def read_after(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield the zone's entries after a number, in order, up to those that are there when this is called.

        Entries that the topic's retention has deleted are passed over, which is logged: announce their files
        again. StoreUnavailableError where the broker does not answer.
        """
        consumer = self._reader()
        try:
            at = TopicPartition(self._topic, self._partition, number)
            low, high = consumer.get_watermark_offsets(at, timeout=_SECONDS)
            if low > number:
                _LOG.warning("the topic has deleted entries %d to %d of %s", number + 1, low, self._topic)
            if high <= max(low, number):
                return
            at.offset = max(low, number)
            consumer.assign([at])
            give_up_at = time.monotonic() + _SECONDS
            while at.offset < high:
                message = consumer.poll(_POLL_SECONDS)
                if message is None:
                    if time.monotonic() > give_up_at:
                        raise self._unavailable("it sends no messages")
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                at.offset = (message.offset() or 0) + 1
                give_up_at = time.monotonic() + _SECONDS
                data = message.value()
                if message.key() == self._key and data is not None:
                    yield at.offset, data
        except KafkaException as failure:
            raise self._unavailable(str(failure)) from failure

    def _reader(self) -> Consumer:
        if self._consumer is None:
            ours = {"group.id": f"streaming-sink-{self._key.decode()}", "enable.auto.commit": False}
            ours["allow.auto.create.topics"] = True
            self._consumer = Consumer({**self._settings, **ours, "log_level": 0})
        return self._consumer

    def _unavailable(self, why: str) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"the Kafka topic of the buffer zone does not answer; try again: {self._servers}/{self._topic}:"
            f" {why}"
        )
