"""Appends to the log of a topic whose messages need registered schemas: refuses batches with others."""

from typing import TYPE_CHECKING

from zhumq.model.buffers import Buffer
from zhumq.model.errors import CorruptMessage, InvalidRecord, NotEnoughReplicas
from zhumq.records.batch import HEADER_BYTES, PREFIX_BYTES, BatchHeader
from zhumq.records.codecs import decompress
from zhumq.storage.log_appender import LogAppender, OneByOneAppender
from zhumq.storage.log_slice import Appended
from zhumq.storage.schema_ids import used_ids
from zhumq.storage.validator import (
    CLIENTS,
    WALKED_BYTES_MAX,
    AppendOrigin,
    CheckedBatch,
    WalkBudget,
    check_batch,
)

if TYPE_CHECKING:
    from zhumq.storage.segmented_log import SegmentedLog


class SchemaAppender(OneByOneAppender):
    """The appender of a log with a `schema_rule`: looks at the ids, and leaves the rest to the appender that the log
    has otherwise. Other logs have no such appender, and pay nothing."""

    __slots__ = ("_plain",)

    def __init__(self, log: "SegmentedLog", plain: LogAppender) -> None:
        super().__init__(log)
        self._plain = plain

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
            end = first[0].batch_length + PREFIX_BYTES
            self._check_schemas(first[0], view[:end])
            while end < len(view):
                # Clients send one batch; of more, the others are checked again when they are appended.
                header, _ = check_batch(view[end:], log.config, now_ms, origin, budget)
                self._check_schemas(header, view[end : end + header.batch_length + PREFIX_BYTES])
                end += header.batch_length + PREFIX_BYTES
        return self._plain.append(
            view,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            origin=origin,
            budget=budget,
            first=first,
        )

    def _check_schemas(self, header: BatchHeader, batch: memoryview) -> None:
        log = self._log
        rule, known = log.config.schema_rule, log.known_schemas
        assert rule is not None, "only a log with a rule has this appender"
        try:
            section = batch[HEADER_BYTES:]
            payload = bytes(decompress(header.compression, section, size_max=WALKED_BYTES_MAX))
            used = used_ids(header, payload, rule)
        except CorruptMessage as error:
            raise InvalidRecord(f"the records of a batch cannot be read: {error}") from None
        if known is None:
            raise NotEnoughReplicas(
                f"{log.topic_partition}: this broker does not know yet which schemas are registered"
            )
        known.check(log.topic_partition.topic, used, any_subject=rule.any_subject)
