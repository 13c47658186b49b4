"""Changes a topic's mode between raft and fetch at an interval during a run."""

import contextlib
import threading
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from chaos.clients import FAST_RETRIES
from chaos.history import Recorder

MODES: Final = ("fetch", "raft")
ASK_SECONDS_MAX: Final = 5.0


class Switcher:
    """A thread that changes `replication.mode` of one topic."""

    def __init__(
        self, bootstrap: str, recorder: Recorder, topic: str, every_seconds: float
    ) -> None:
        self.times_ms: list[int] = []  # when a mode change was requested that the broker accepted
        self.refused = 0
        self._admin = AdminClient({**FAST_RETRIES, "bootstrap.servers": bootstrap})
        self._recorder = recorder
        self.topic = topic
        self._every_seconds = every_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-switcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def switch(self, mode: str) -> bool:
        """Request a mode; whether the broker accepted it."""
        entry = ConfigEntry("replication.mode", mode, incremental_operation=AlterConfigOpType.SET)
        request = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        asked_ms = self._recorder.now_ms()
        with contextlib.suppress(KafkaException, TimeoutError):
            asked = self._admin.incremental_alter_configs(
                [request], request_timeout=ASK_SECONDS_MAX
            )
            for answer in asked.values():
                answer.result(2 * ASK_SECONDS_MAX)
            self.times_ms.append(asked_ms)
            return True
        self.refused += 1
        return False

    def _run(self) -> None:
        turn = 0
        while not self._stopping.wait(self._every_seconds):
            # After a failure the same mode is requested again.
            turn += self.switch(MODES[turn % len(MODES)])
