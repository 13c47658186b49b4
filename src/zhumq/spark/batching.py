"""Decodes sections into Arrow RecordBatches of a bounded size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from zhumq.records.sections import Section
from zhumq.spark.columns import Selection
from zhumq.spark.decode_numpy import decode_sections

ROWS_MAX: Final = 50_000  # in an Arrow RecordBatch; more of them cost memory and gain no speed
GROUP_BYTES_MAX: Final = 16 * 1024 * 1024  # of payload, before one more batch is added

Decoder = Callable[[Sequence[Section], Selection], Any]


def record_batches(
    sections: Iterable[Section], selection: Selection, decode: Decoder = decode_sections
) -> Iterator[Any]:
    """The selected columns of the sections, decoded many batches at a time."""
    group: list[Section] = []
    rows = size = 0
    for section in sections:
        count = section.header.records_count
        if group and (rows + count > ROWS_MAX or size >= GROUP_BYTES_MAX):
            yield from _slices(decode(group, selection))
            group, rows, size = [], 0, 0
        group.append(section)
        rows += count
        size += len(section.payload)
    if group:
        yield from _slices(decode(group, selection))


def _slices(batch: Any) -> Iterator[Any]:
    """Slices of at most ROWS_MAX rows: a compressed batch of a few KiB can hold a million records."""
    for start in range(0, batch.num_rows, ROWS_MAX):
        yield batch.slice(start, ROWS_MAX)
