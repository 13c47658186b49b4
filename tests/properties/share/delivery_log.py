"""Generated logs of batches, control batches and holes, as a share partition sees them."""

from random import Random

from zhumq.share.share_partition import Span


def made_up_log(draw: Random, *, offsets: int) -> list[Span]:
    """Batches up to about `offsets` offsets; some are control batches, some were removed by compaction."""
    spans: list[Span] = []
    offset = 0
    while offset < offsets:
        size = draw.choice((1, 1, 2, 5, 20))
        kind = draw.random()
        if kind < 0.1:
            size = 1
            spans.append(Span(offset, offset, has_records=False))
        elif kind < 0.9 or offset + size >= offsets:
            spans.append(Span(offset, offset + size - 1))
        offset += size
    if not spans or spans[-1].last_offset != offset - 1:
        spans.append(Span(offset, offset))
    return spans


def slice_from(draw: Random, log: list[Span], offset: int) -> list[Span]:
    """The result of a read from an offset on: whole batches, at least one if there is one."""
    rest = [span for span in log if span.last_offset >= offset]
    return rest[: draw.randint(1, 6)]


def offsets_with_records(log: list[Span]) -> set[int]:
    return {
        offset
        for span in log
        if span.has_records
        for offset in range(span.first_offset, span.last_offset + 1)
    }
