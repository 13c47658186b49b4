"""The checks of a follower on the batches of its leader, before it writes them unchanged."""

from typing import NamedTuple

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    CHECKED_OFFSET,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
)
from zhumq.records.codecs import crc32c


class FetchedBatch(NamedTuple):
    """A batch with the offset and the epoch that its leader assigned."""

    header: BatchHeader
    data: memoryview


def check_fetched(
    view: memoryview, *, next_offset: int, last_epoch: int, epoch_max: int, gaps_allowed: bool
) -> list[FetchedBatch]:
    """All complete batches of a fetch response; skips an incomplete one at the end. Raises CorruptMessage.

    The checksum does not cover offsets and epochs, so they are checked separately: each batch
    follows the one before, in the same epoch or a later one up to the leader's.
    """
    found: list[FetchedBatch] = []
    position = 0
    end = len(view)
    while position + HEADER_BYTES <= end:
        header = BatchHeader._make(HEADER.unpack_from(view, position))
        if header.magic != MAGIC or header.batch_length < BATCH_LENGTH_MIN:
            raise CorruptMessage(f"no batch at byte {position} of a fetch response")
        batch_end = position + header.batch_length + PREFIX_BYTES
        if batch_end > end:
            break
        data = view[position:batch_end]
        if crc32c(data[CHECKED_OFFSET:]) != header.crc:
            raise CorruptMessage(f"fetched batch {header.base_offset} does not match its checksum")
        follows = header.base_offset == next_offset or (
            gaps_allowed and header.base_offset > next_offset
        )
        if not follows and not (
            not found and header.base_offset < next_offset <= header.last_offset
        ):
            raise CorruptMessage(
                f"a fetched batch has offset {header.base_offset}, expected is {next_offset}"
            )
        if header.last_offset_delta < 0 or not (
            max(last_epoch, 0) <= header.partition_leader_epoch <= epoch_max
        ):
            raise CorruptMessage(
                f"fetched batch {header.base_offset} is of epoch {header.partition_leader_epoch},"
                f" which is not in {last_epoch} to {epoch_max}"
            )
        found.append(FetchedBatch(header, data))
        next_offset = header.next_offset
        last_epoch = header.partition_leader_epoch
        position = batch_end
    return found
