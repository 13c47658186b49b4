"""Looks up last stable offsets and high watermarks at an interval."""

import threading
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chaos.clients import FAST_RETRIES, ClientErrors, hanging_at, partition_name
from chaos.history import Action, Entry, Phase, Recorder

LOOK_SECONDS: Final = 1.0
ASK_SECONDS: Final = 2.0
JOIN_SECONDS_MAX: Final = 60.0


class LastStablePoller:
    """A thread that records both offsets of each partition."""

    def __init__(
        self,
        bootstrap: str,
        recorder: Recorder,
        client_errors: ClientErrors,
        partitions: Sequence[tuple[str, int]],
    ) -> None:
        self._recorder = recorder
        self._client_errors = client_errors
        self._partitions = partitions
        self._process = recorder.new_process()
        # The library asks at the isolation level of the consumer.
        self._stable, self._all = (
            Consumer(
                {
                    **FAST_RETRIES,
                    "bootstrap.servers": bootstrap,
                    "group.id": "chaos-last-stable",
                    "isolation.level": level,
                    "error_cb": client_errors.count,
                }
            )
            for level in ("read_committed", "read_uncommitted")
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-last-stable", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def join(self) -> str | None:
        return hanging_at(self._thread, JOIN_SECONDS_MAX)

    def look(self) -> list[str]:
        """Record both offsets of each partition that answers; the partitions where they are not the same."""
        entries = [
            entry for each in self._partitions if (entry := self._look_at(*each)) is not None
        ]
        self._recorder.write(self._process, Phase.OK, Action.LAST_STABLE, entries)
        equal = {entry.partition for entry in entries if entry.offset == entry.value}
        return [name for each in self._partitions if (name := partition_name(*each)) not in equal]

    def _look_at(self, topic: str, number: int) -> Entry | None:
        asked = TopicPartition(topic, number)
        try:
            last_stable = self._stable.get_watermark_offsets(asked, ASK_SECONDS, cached=False)
            end = self._all.get_watermark_offsets(asked, ASK_SECONDS, cached=False)
        except KafkaException as exception:
            self._client_errors.count(exception.args[0])
            return None
        return Entry(partition_name(topic, number), int(last_stable[1]), int(end[1]))

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self.look()
