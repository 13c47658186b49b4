"""The schema registry of a process: in memory, as far as `_schemas` was read; changed by writing to it."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from zhumq.admin.errors import Refused, Unavailable
from zhumq.admin.protoc import compile_protobuf
from zhumq.admin.schema_log import (
    MESSAGE_BYTES_MAX,
    Chunk,
    LogGone,
    SchemaLink,
    SchemaWriter,
    prepare_topic,
)
from zhumq.admin.shared_lock import SharedLock
from zhumq.client.brokers import TopicMissing
from zhumq.client.errors import OutcomeUnknown, ProducerFenced, TransactionAborted
from zhumq.schemas.changes import Change
from zhumq.schemas.errors import SchemaTooLarge
from zhumq.schemas.formats import Formats
from zhumq.schemas.log_records import TOPIC, decode, encode
from zhumq.schemas.registry import Registry

ATTEMPTS_MAX: Final = 20  # of a change, while other processes write as well
BACKOFF_SECONDS_MAX: Final = 0.5
VISIBLE_SECONDS_MAX: Final = 10.0  # until a committed change is read back
SKIPPED_LOGGED_MAX: Final = 20  # of one log: another program may have written it
_POLL_SECONDS: Final = 0.005

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Message = tuple[bytes | None, bytes | None]


class SchemaStore:
    """The registry for all callers of a process. Each call has the rights of the link that it is given."""

    def __init__(self) -> None:
        self.formats = Formats(compile_protobuf)
        self.skipped = 0  # messages of the log that are no records
        self._state = SharedLock()
        self._registry = Registry()
        self._topic_id: str | None = None
        self._next_offset = 0
        self._awaited: Message | None = None  # the last message of the change that is being written
        self._is_awaited_seen = False
        self._loading = threading.Lock()
        self._changing = threading.Lock()
        self._writer: SchemaWriter | None = None

    def close(self) -> None:
        with self._changing:
            self._drop_writer()

    def read(self, link: SchemaLink, ask: Callable[[Registry], Answer]) -> Answer:
        """The answer of the registry as it is now. Raises what `ask` raises, Refused and Unavailable."""
        self._refresh(link)
        with self._state.reading():
            return ask(self._registry)

    def change(self, link: SchemaLink, decide: Callable[[Registry], Change[Answer]]) -> Answer:
        """Write what `decide` decides on, and answer when it is written and read back.

        `decide` is called again if another writer came first. Raises what it raises, Refused and Unavailable.
        """
        for attempt in range(ATTEMPTS_MAX):
            change = self.read(link, decide)
            if not change.records:
                return change.answer
            if attempt:
                # Writers that end each other in turn would go on for long without some chance.
                time.sleep(random.uniform(0, BACKOFF_SECONDS_MAX))  # noqa: S311 - not for secrets
            with self._changing:
                try:
                    return self._write(link, decide)
                except (ProducerFenced, TransactionAborted):
                    self._drop_writer()
                except OutcomeUnknown as error:
                    self._drop_writer()
                    raise Unavailable(
                        f"the change may have been made: {error}", "look before you repeat it"
                    ) from error
        raise Unavailable(f"other processes write to {TOPIC} all the time", "try again")

    def _write(self, link: SchemaLink, decide: Callable[[Registry], Change[Answer]]) -> Answer:
        """Raises ProducerFenced if another writer has begun after this one, and TransactionAborted."""
        writer = self._writer
        is_same = writer is not None and writer.security == link.connection.security
        if writer is None or not is_same or self._topic_id is None:
            self._drop_writer()
            prepare_topic(link.connection)
            writer = self._writer = _begun(link)
        # What other writers have written is all there now, since none of them can commit after this one has begun.
        self._refresh(link, must_exist=True, is_all=True)
        with self._state.reading():
            change = decide(self._registry)
        if not change.records:
            return change.answer
        messages = [encode(each) for each in change.records]
        if max(len(value or b"") for _, value in messages) > MESSAGE_BYTES_MAX - 1024:
            raise SchemaTooLarge(f"the schema does not fit into {MESSAGE_BYTES_MAX} bytes")
        self._awaited, self._is_awaited_seen = messages[-1], False
        try:
            writer.write(messages)
        except (ProducerFenced, TransactionAborted):
            # The other writer may have begun after the commit.
            self._refresh(link, must_exist=True, is_all=True)
            if not self._is_awaited_seen:
                raise
            self._drop_writer()
            return change.answer
        except (Refused, Unavailable) as error:
            self._drop_writer()
            if error.code == "MESSAGE_TOO_LARGE":
                raise SchemaTooLarge(str(error)) from error
            raise
        self._refresh(link, must_exist=True, is_all=True)
        return change.answer

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    # Reading

    def _refresh(self, link: SchemaLink, *, must_exist: bool = False, is_all: bool = False) -> None:
        """Read the log up to its end, as the caller of the link.

        `is_all` also waits for transactions that are being committed, whose end is written a moment after its answer.
        """
        if self._next_offset == 0:
            with self._loading:  # The first caller reads it, and the others need not.
                self._read_on(link, must_exist=must_exist, is_all=is_all)
            return
        self._read_on(link, must_exist=must_exist, is_all=is_all)

    def _read_on(self, link: SchemaLink, *, must_exist: bool, is_all: bool) -> None:
        deadline = time.monotonic() + VISIBLE_SECONDS_MAX
        while True:
            topic_id, offset = self._topic_id, self._next_offset
            try:
                chunk = link.read(topic_id, offset)
            except TopicMissing:
                if must_exist:
                    # Brokers learn of a topic that was just created one after the other.
                    self._check_time(deadline)
                    time.sleep(_POLL_SECONDS)
                    continue
                self._start_anew()
                return
            except LogGone:
                logger.warning("%s was created again or has lost messages: it is read anew", TOPIC)
                self._start_anew()
                self._check_time(deadline)
                continue
            self._apply(chunk, offset)
            if not chunk.is_at_end:
                continue
            if not is_all or chunk.stable_offset >= chunk.end_offset:
                return
            self._check_time(deadline)
            time.sleep(_POLL_SECONDS)

    def _check_time(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise Unavailable(f"{TOPIC!r} cannot be read up to its end", "try again")

    def _start_anew(self) -> None:
        with self._state.writing():
            self._registry = Registry()
            self._topic_id = None
            self._next_offset = 0
            self.skipped = 0

    def _apply(self, chunk: Chunk, offset: int) -> None:
        """Apply what was read from an offset on, unless another caller has read it as well."""
        if chunk.next_offset == offset and self._topic_id == chunk.topic_id:
            return
        with self._state.writing():
            if self._next_offset != offset or self._topic_id not in (None, chunk.topic_id):
                return
            for place, (key, value) in chunk.messages:
                self._replay(place, key, value)
            self._topic_id = chunk.topic_id
            self._next_offset = chunk.next_offset

    def _replay(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if (key, value) == self._awaited:
            self._is_awaited_seen = True
        try:
            record = decode(key, value)
        except ValueError as error:
            self.skipped += 1
            if self.skipped <= SKIPPED_LOGGED_MAX:
                logger.warning(
                    "%s-0@%d is no record of a schema registry: %s", TOPIC, offset, error
                )
            return
        self._registry.replay(record)


def _begun(link: SchemaLink) -> SchemaWriter:
    """A writer before which no other can commit any more."""
    writer = SchemaWriter(link.connection)
    try:
        writer.begin()
    except BaseException:
        writer.close()
        raise
    return writer
