"""An honest client beside an attack: produces, fetches, reconnects, and measures how long each took."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.sasl_client import SaslClient

from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.testing.raw_client import RawClient

from .target import HONEST, Target, batch_of, healthz, produce

PAUSE_SECONDS = 0.01
CONNECT_EVERY = 10  # rounds: a new client connects and finds its topic
HEALTH_EVERY = 50
SECONDS_MAX = 10.0
SMALL_BYTES = 100
MEDIUM_BYTES = 400_000  # arrives in more than one read, so that it needs request memory
MEDIUM_EVERY = 5
LOGIN_PAUSE_SECONDS = 0.05
PASSWORD = "honest's secret"
CALM_SECONDS = 0.05
CALM_ROUNDS = 20


@dataclass(slots=True)
class Samples:
    """How long operations took, and how many failed."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


class HonestClient:
    """One producer and one consumer in a thread of their own, until stopped."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._small = batch_of(b"v" * SMALL_BYTES)
        self._medium = batch_of(b"v" * MEDIUM_BYTES)
        self.samples = Samples()
        self.calm_rounds = 0  # in a row, each operation quick

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Samples:
        self._stop.set()
        self._thread.join(SECONDS_MAX * 2)
        return self.samples

    def wait_calm(self, seconds_max: float) -> float | None:
        """Seconds until every operation of some rounds in a row was quick. None: never."""
        begun = time.monotonic()
        self.calm_rounds = 0
        while time.monotonic() - begun < seconds_max:
            if self.calm_rounds >= CALM_ROUNDS:
                return time.monotonic() - begun
            time.sleep(PAUSE_SECONDS)
        return None

    def rounds(self, count: int) -> None:
        """Runs this many rounds. Raises OSError if the broker does not serve."""
        with RawClient(self._target.kafka, seconds_max=SECONDS_MAX) as client:
            for number in range(count):
                self._round(client, number)

    def _run(self) -> None:
        rounds = 0
        while not self._stop.is_set():
            try:
                with RawClient(self._target.kafka, seconds_max=SECONDS_MAX) as client:
                    while not self._stop.is_set():
                        self._round(client, rounds)
                        rounds += 1
                        self._stop.wait(PAUSE_SECONDS)
            except OSError as error:
                self.samples.errors.append(f"{type(error).__name__}: {error}")
                self.calm_rounds = 0
                rounds += 1
                self._stop.wait(PAUSE_SECONDS)

    def _round(self, client: RawClient, number: int) -> None:
        samples = self.samples
        before = len(samples.seconds)
        if number % CONNECT_EVERY == 0:
            samples.seconds.append(_seconds_of(self._connect_anew))
        if number % HEALTH_EVERY == 0:
            samples.seconds.append(_seconds_of(lambda: healthz(self._target, SECONDS_MAX)))
        batch = self._medium if number % MEDIUM_EVERY == 0 else self._small
        begun = time.monotonic()
        offset = produce(client, HONEST, batch)
        produced = time.monotonic()
        self._fetch(client, offset)
        samples.seconds += [produced - begun, time.monotonic() - produced]
        slowest = max(samples.seconds[before:])
        self.calm_rounds = self.calm_rounds + 1 if slowest < CALM_SECONDS else 0

    def _connect_anew(self) -> None:
        with RawClient(self._target.kafka, seconds_max=SECONDS_MAX) as client:
            topics = [MetadataRequestTopic(name=HONEST)]
            answer = client.ask(ApiKey.METADATA, MetadataRequest(topics=topics), 9)
            if answer.topics[0].error_code:
                raise ConnectionError(f"its topic has error {answer.topics[0].error_code}")

    def _fetch(self, client: RawClient, offset: int) -> None:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=HONEST, partitions=[partition])
        asked = FetchRequest(
            max_wait_ms=5_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic]
        )
        answer = client.ask(ApiKey.FETCH, asked, 11)
        error_code = answer.responses[0].partitions[0].error_code
        if error_code:
            raise ConnectionError(f"fetch was answered with error {error_code}")


class HonestLogins:
    """A user that connects and logs in again and again where the attack does, in a thread, until stopped."""

    def __init__(self, target: Target) -> None:
        self._sasl = target.sasl
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples = Samples()
        with SaslClient(target.kafka) as admin:
            admin.create_user(HONEST, PASSWORD)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(SECONDS_MAX * 2)

    def _run(self) -> None:
        while not self._stop.wait(LOGIN_PAUSE_SECONDS):
            try:
                self.samples.seconds.append(_seconds_of(self._log_in))
            except OSError as error:
                self.samples.errors.append(f"{type(error).__name__}: {error}")

    def _log_in(self) -> None:
        with SaslClient(self._sasl, seconds_max=SECONDS_MAX) as client:
            answer = client.log_in(user=HONEST, password=PASSWORD)
            if answer.error_code:
                raise ConnectionError(f"the login was refused with {answer.error_code}")


def _seconds_of(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun
