"""Appends to the log of a topic with delayed messages: hides the delayed records of a batch from consumers."""

from collections.abc import Sequence

from zhumq.delays.headers import due_times
from zhumq.model.buffers import Buffer
from zhumq.model.delay_headers import DELAY_HEADERS_PREFIX
from zhumq.model.errors import CorruptMessage, InvalidRecord, NotEnoughReplicas
from zhumq.records.batch import (
    HEAD_BYTES,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    PREFIX_BYTES,
    BatchHeader,
    decode_header,
    decode_payload,
)
from zhumq.records.codecs import decompress
from zhumq.records.deferred import defer
from zhumq.storage.log_appender import OneByOneAppender
from zhumq.storage.log_slice import Appended
from zhumq.storage.validator import (
    CLIENTS,
    WALKED_BYTES_MAX,
    AppendOrigin,
    CheckedBatch,
    WalkBudget,
    check_batch,
)


class DeferringAppender(OneByOneAppender):
    """The appender of a log whose topic sets delay.enable. Other logs have the plain one, and pay nothing."""

    __slots__ = ()

    def append(
        self,
        batches: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        budget: WalkBudget | None = None,
        first: CheckedBatch | None = None,
    ) -> Appended:
        log = self._log
        view = batches if type(batches) is memoryview else memoryview(batches)
        if origin in CLIENTS and log.failure is None:
            first = first or check_batch(view, log.config, now_ms, origin, budget)
            size = first[0].batch_length + PREFIX_BYTES
            written = self._deferred(first[0], view[:size], origin, now_ms)
            if isinstance(written, Appended):
                return written
            if written:
                if size != len(view):
                    raise InvalidRecord("delayed messages come in one batch for each partition")
                return self._write_deferred(first[0], written, leader_epoch)
            if size != len(view) and DELAY_HEADERS_PREFIX in bytes(view[size:]):
                raise InvalidRecord("delayed messages come in one batch for each partition")
        return super().append(
            view,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=origin,
            budget=budget,
            first=first,
        )

    def _deferred(
        self, header: BatchHeader, batch: memoryview, origin: AppendOrigin, now_ms: int
    ) -> Appended | list[bytes]:
        """The batches to write in place of this one; none if it has no delayed records. Or the append that it repeats."""
        section = batch[HEADER_BYTES:]
        try:
            payload = bytes(decompress(header.compression, section, size_max=WALKED_BYTES_MAX))
            if DELAY_HEADERS_PREFIX not in payload:
                return []
        except CorruptMessage as error:
            raise _unreadable(error) from None
        if header.producer_id >= 0:
            # First: a repeat is answered as the first one was, whatever the time is now.
            repeated = self._check_producers([(header, ())], origin)
            if repeated is not None:
                return repeated
        # The records are decoded one at a time, and again if some are kept: all of a batch at once take
        # several times its bytes, and leave holes in the heap between the entries of pending messages.
        try:
            dues = due_times(decode_payload(header, payload), now_ms, self._log.config.delay_max_ms)
        except CorruptMessage as error:
            raise _unreadable(error) from None
        if all(due_ms is None for due_ms in dues):
            return []
        if header.is_transactional:
            delayed = tuple(index for index, due_ms in enumerate(dues) if due_ms is not None)
            raise InvalidRecord(
                "a message in a transaction cannot be delayed: send it without one", delayed
            )
        if not self._log.accepts_deferred:
            raise NotEnoughReplicas(
                f"{self._log.topic_partition}: the coordinator of delayed messages is not ready yet"
            )
        return defer(header, bytes(batch), decode_payload(header, payload), dues, now_ms)

    def _write_deferred(
        self, header: BatchHeader, batches: Sequence[bytes], leader_epoch: int
    ) -> Appended:
        log = self._log
        checked: list[CheckedBatch] = [
            (decode_header(data), (memoryview(data)[HEAD_BYTES:],)) for data in batches
        ]
        self._write(checked, sum(map(len, batches)), leader_epoch)
        append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1
        last_offset = log.log_end_offset - 1
        base_offset = last_offset - header.last_offset_delta
        return Appended(base_offset, last_offset, append_time_ms, log.log_start_offset, False)


def _unreadable(error: CorruptMessage) -> InvalidRecord:
    return InvalidRecord(f"the records of a batch cannot be read: {error}")
