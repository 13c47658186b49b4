"""Opens a log: finds its segments, recovers them after a crash, truncates torn tails, marks damage."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise

from zhumq.host.disk import TEMPORARY_SUFFIX, DirectoryEntry, Disk
from zhumq.model.errors import BrokerError, CorruptMessage, InconsistentTopicId
from zhumq.storage.checkpoints import (
    CORRUPT_RANGES_FILE,
    LEADER_EPOCH_FILE,
    PARTITION_FILE,
    CheckpointCorrupt,
    decode_lines,
    encode_lines,
    read_leader_epochs,
    read_topic_id,
    write_topic_id,
)
from zhumq.storage.compaction_swap import complete_swaps, swap_range
from zhumq.storage.folder_check import check_against, lost_segments, placeholder_segment
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from zhumq.storage.leader_epochs import LeaderEpochs
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_files import (
    CLEANED_SUFFIX,
    CUT_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    KEY_INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_in,
)
from zhumq.storage.log_slice import CorruptRange
from zhumq.storage.manifest import Manifest, read_manifest
from zhumq.storage.new_log import LoadedLog, new_log
from zhumq.storage.producer_restore import keep_snapshot, load_indexes, restore_producers
from zhumq.storage.recovery_scan import ScanResult, scan_segment
from zhumq.storage.segment import Segment
from zhumq.storage.verification import Proof

logger = logging.getLogger(__name__)

ANY_OFFSET = 2**63 - 1
CUT_BYTES_MAX = 64 * 1024 * 1024  # of a torn tail, kept beside the log


def load_log(
    directory: str,
    config: LogConfig,
    *,
    disk: Disk,
    cache: IndexCache,
    recovery_point: int,
    clean_shutdown: bool,
    log_start_offset: int,
    topic_id: uuid.UUID | None,
    lazily: bool = False,
) -> LoadedLog:
    """Open the log in the folder; a new log if the folder is empty."""
    entries: Sequence[DirectoryEntry] = disk.list_directory(directory)
    if not entries and not log_start_offset:
        return new_log(directory, config, disk, cache, topic_id, lazily=lazily)
    if not entries:
        disk.make_directory(directory)
    manifest = read_manifest(disk, directory) if entries else None
    entries, swapped = _clear_up(directory, entries, disk)
    if manifest is not None:
        for first, next_offset in swapped:
            manifest = manifest.without(first, next_offset)
    if manifest is not None:
        # The log start offset never decreases, so the larger one is right.
        log_start_offset = max(log_start_offset, manifest.log_start_offset)
    topic_id = _load_topic_id(directory, topic_id, disk, manifest, is_new=not entries)
    lost = lost_segments(manifest, entries, log_start_offset)
    segments = _find_segments(directory, entries, config, disk, cache, log_start_offset, lost)
    if manifest is not None:
        epochs = LeaderEpochs(list(manifest.epochs))
        recovery_point = manifest.recovery_point
        gaps_end = manifest.gaps_end
    else:
        epochs = _load_leader_epochs(directory, segments, disk)
        gaps_end = ANY_OFFSET if config.is_compacted else 0
    is_checked = check_against(
        manifest, segments, recovery_point, Proof(gaps_end=gaps_end, epochs=epochs), config
    )
    is_empty = not segments[-1].has_files
    end_offset = _clean_end(segments[-1]) if clean_shutdown or is_empty else None
    if end_offset != recovery_point:  # A clean shutdown sets the recovery point to the log end.
        clean_shutdown = False
    if end_offset is None or not (clean_shutdown or is_empty):
        end_offset = _recover(
            directory,
            segments,
            epochs,
            recovery_point,
            disk,
            gaps_end=gaps_end,
            is_certain=manifest is not None,
        )
    elif is_checked or lost:
        write_corrupt_ranges(directory, segments, disk)
    if any(bad.next_offset == end_offset for bad in segments[-1].corrupt_ranges):
        # New batches go behind the damage, into a new segment.
        segments.append(
            Segment.create(
                directory,
                end_offset,
                disk=disk,
                cache=cache,
                index_interval_bytes=config.index_interval_bytes,
            )
        )
    for segment, following in pairwise(segments):
        segment.is_sealed = True
        segment.next_offset = following.base_offset
    if end_offset < log_start_offset:
        segments = _start_over(directory, segments, config, disk, cache, log_start_offset)
        end_offset = log_start_offset
    start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_end(end_offset)
    epochs.truncate_start(start_offset)
    proofs = None if manifest is None else manifest.transaction_indexes
    indexes = load_indexes(directory, segments, entries, proofs, swapped, disk)
    if not clean_shutdown:
        indexes.truncate_to(min(recovery_point, end_offset))
    producers = restore_producers(
        directory,
        segments,
        end_offset,
        disk=disk,
        indexes=indexes,
        entries=entries,
        snapshot_offset_max=None if clean_shutdown else max(recovery_point, start_offset),
    )
    if not clean_shutdown and producers.state.producers:
        producers = keep_snapshot(directory, producers, end_offset, disk)
    for segment in segments:
        segment.close_file()
    return LoadedLog(
        segments=segments,
        log_start_offset=start_offset,
        log_end_offset=end_offset,
        recovery_point=end_offset if clean_shutdown else min(recovery_point, end_offset),
        leader_epochs=epochs,
        producer_state=producers.state,
        transaction_indexes=indexes,
        snapshot_offset=producers.snapshot_offset,
        topic_id=topic_id,
        is_new=not entries,
        gaps_end=min(gaps_end, end_offset),
        key_index_names=[entry.name for entry in entries if KEY_INDEX_SUFFIX in entry.name],
        needs_manifest=manifest is None or bool(swapped),
    )


def _load_topic_id(
    directory: str,
    topic_id: uuid.UUID | None,
    disk: Disk,
    manifest: Manifest | None,
    *,
    is_new: bool,
) -> uuid.UUID | None:
    """The topic id of the folder. Writes it if there is none, and overwrites it only with that of the
    manifest, which has a checksum."""
    path = f"{directory}/{PARTITION_FILE}"
    stored = None if is_new else read_topic_id(disk, path)
    if manifest is not None and manifest.topic_id not in (None, stored):
        logger.warning("%s is damaged: the topic id is %s", path, manifest.topic_id)
        stored = manifest.topic_id
        write_topic_id(disk, path, stored)
    if stored is None:
        if not is_new:
            logger.warning("%s has no topic id", directory)
        if topic_id is not None:
            write_topic_id(disk, path, topic_id)
        return topic_id
    if topic_id is not None and topic_id != stored:
        raise InconsistentTopicId(f"{directory} belongs to topic id {stored}, not {topic_id}")
    return stored


def _clear_up(
    directory: str, entries: Sequence[DirectoryEntry], disk: Disk
) -> tuple[Sequence[DirectoryEntry], list[tuple[int, int]]]:
    """Remove leftovers of a crash and complete interrupted compactions. Returns the new folder listing
    and the offset ranges of the completed compactions."""
    leftovers = (CLEANED_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX)
    for entry in entries:
        if entry.name.endswith(leftovers):
            disk.unlink(f"{directory}/{entry.name}")
    swapped = [covered for entry in entries if (covered := swap_range(entry.name)) is not None]
    if complete_swaps(directory, entries, disk):
        entries = disk.list_directory(directory)
    return entries, swapped


def _find_segments(
    directory: str,
    entries: Sequence[DirectoryEntry],
    config: LogConfig,
    disk: Disk,
    cache: IndexCache,
    log_start_offset: int,
    lost: Mapping[int, int],
) -> list[Segment]:
    sizes = {entry.name: entry.size for entry in entries}
    found = (base for name in sizes if (base := offset_in(name, LOG_SUFFIX)) is not None)
    bases = sorted({*found, *lost})
    interval = config.index_interval_bytes
    if not bases:
        return [
            Segment.create(
                directory,
                log_start_offset,
                disk=disk,
                cache=cache,
                index_interval_bytes=interval,
                # The file name persists a log start offset other than 0, so the file is created now.
                make_folder=None if log_start_offset else lambda: None,
            )
        ]
    damage = _read_corrupt_ranges(directory, disk) if CORRUPT_RANGES_FILE in sizes else []
    segments: list[Segment] = []
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        name = f"{base:020d}"
        if base in lost:
            segments.append(placeholder_segment(directory, base, lost[base], disk, cache, interval))
            continue
        segment = Segment(
            directory,
            base,
            disk=disk,
            cache=cache,
            size=sizes[name + LOG_SUFFIX],
            index_interval_bytes=interval,
        )
        segment.corrupt_ranges = [bad for bad in damage if bad.segment_base_offset == base]
        if following is not None and not segment.size and not config.is_compacted:
            logger.error("%s is empty, offsets %d to %d are lost", name, base, following - 1)
            segment.corrupt_ranges = [CorruptRange(base, 0, 0, base, following)]
        if (
            sizes.get(name + INDEX_SUFFIX, -1) % OFFSET_ENTRY_BYTES
            or sizes.get(name + TIME_INDEX_SUFFIX, -1) % TIME_ENTRY_BYTES
        ):
            logger.warning("%s/%s: an index is missing or cut off, rebuilding", directory, name)
            segment.rebuild_indexes()
        segments.append(segment)
    return segments


def _start_over(
    directory: str,
    segments: Sequence[Segment],
    config: LogConfig,
    disk: Disk,
    cache: IndexCache,
    log_start_offset: int,
) -> list[Segment]:
    """Replace segments that end before the log start offset by an empty one that begins there."""
    logger.warning(
        "%s ends before its log start offset and continues at %d", directory, log_start_offset
    )
    for segment in segments:
        for path in segment.paths:
            disk.unlink(path)
        segment.release()
    return [
        Segment.create(
            directory,
            log_start_offset,
            disk=disk,
            cache=cache,
            index_interval_bytes=config.index_interval_bytes,
        )
    ]


def _load_leader_epochs(directory: str, segments: Sequence[Segment], disk: Disk) -> LeaderEpochs:
    epochs = read_leader_epochs(disk, f"{directory}/{LEADER_EPOCH_FILE}")
    if epochs is not None:
        return epochs
    epochs = LeaderEpochs()
    for segment in segments:
        if not segment.size:
            continue
        try:
            for _, header in segment.scan():
                epochs.assign(header.partition_leader_epoch, header.base_offset)
        except CorruptMessage as error:
            logger.warning("the leader epochs are incomplete: %s", error)
    return epochs


def _clean_end(segment: Segment) -> int | None:
    """The end of a log that was closed cleanly; None if its last segment is damaged."""
    end_offset = segment.base_offset
    if not segment.size:
        return end_offset
    try:
        for _, header in segment.scan(segment.offset_index.boundary_before(segment.size)):
            end_offset = header.next_offset
    except CorruptMessage as error:
        logger.warning("damaged after a clean shutdown: %s", error)
        return None
    return max([end_offset, *(bad.next_offset for bad in segment.corrupt_ranges)])


def _recover(
    directory: str,
    segments: list[Segment],
    epochs: LeaderEpochs,
    recovery_point: int,
    disk: Disk,
    *,
    gaps_end: int,
    is_certain: bool,
) -> int:
    """Scan everything past the recovery point, truncate a torn tail, mark damage. Returns the log end."""
    first = max(
        (place for place, each in enumerate(segments) if each.base_offset <= recovery_point),
        default=0,
    )
    epochs.truncate_end(max(recovery_point, segments[first].base_offset + 1))
    results: list[ScanResult] = []
    for segment in segments[first:]:
        start, expected_offset = _scan_start(segment, recovery_point)
        segment.restart_indexes(start, expected_offset)
        results.append(
            scan_segment(
                segment,
                start,
                expected_offset,
                gaps_end=gaps_end,
                leader_epochs=epochs,
            )
        )
    _drop_empty_end(segments, results, recovery_point, disk)
    _mark_damage(results, gaps_end)
    last = results[-1]
    end_offset = last.next_offset
    if last.has_bad_end and last.next_offset >= recovery_point:
        _cut(last.segment, last.valid_end, last.next_offset, disk)
    elif last.has_bad_end:
        end_offset = recovery_point  # It was flushed, so it is damage and not a torn tail.
        _add_damage(last.segment, last.valid_end, last.next_offset, recovery_point)
    if end_offset < recovery_point and is_certain:
        # The manifest proves that the lost part was flushed. Its offsets are not assigned again.
        _add_damage(last.segment, last.valid_end, end_offset, recovery_point)
        end_offset = recovery_point
    elif end_offset < recovery_point:
        logger.error(
            "%s ends at offset %d, but was flushed up to %d: records are missing",
            directory,
            end_offset,
            recovery_point,
        )
    for result in results:
        result.segment.unverified_end = min(result.segment.unverified_end, result.start)
        if result.segment.size > result.start:
            result.segment.file.sync()
            result.segment.replace_index_files(final=result is not last)
    write_corrupt_ranges(directory, segments, disk)
    return end_offset


def _scan_start(segment: Segment, recovery_point: int) -> tuple[int, int]:
    """The position and the offset of the first batch past the recovery point."""
    if recovery_point <= segment.base_offset or not segment.size:
        return 0, segment.base_offset
    known = segment.offset_index.position_before(recovery_point)
    if known and not segment.entry_matches(known):
        known = 0  # The entry or the batch is damaged: a scan from the start shows which.
    # The offset in a header past the recovery point is not trusted yet.
    start, expected_offset = known, recovery_point if known else segment.base_offset
    try:
        for position, header in segment.scan(known):
            # No batch crosses the recovery point, unless its header is damaged.
            if header.next_offset > recovery_point:
                break
            start, expected_offset = position + header.size, header.next_offset
    except CorruptMessage as error:
        logger.warning("damaged below the recovery point %d: %s", recovery_point, error)
    return start, expected_offset


def _drop_empty_end(
    segments: list[Segment], results: list[ScanResult], recovery_point: int, disk: Disk
) -> None:
    """Remove segments at the end without a valid batch, except one that follows the log's end."""
    while len(results) > 1:
        last, previous = results[-1], results[-2]
        is_next = previous.next_offset == last.segment.base_offset and not previous.has_bad_end
        if last.has_batches or is_next or last.segment.base_offset < recovery_point:
            return
        _cut(last.segment, 0, last.segment.base_offset, disk)
        for path in last.segment.paths:
            disk.unlink(path)
        last.segment.release()
        segments.pop()
        results.pop()


def _mark_damage(results: Sequence[ScanResult], gaps_end: int) -> None:
    """Keep bad bytes with valid batches behind them, and mark them as unreadable."""
    for place, result in enumerate(results):
        segment = result.segment
        for bad in result.corrupt_ranges:
            _add_damage(segment, bad.start_position, bad.first_offset, bad.next_offset, bad)
        if place + 1 == len(results):
            continue
        following = results[place + 1].segment.base_offset
        is_short = gaps_end <= result.next_offset < following
        if result.has_bad_end or is_short:
            _add_damage(segment, result.valid_end, result.next_offset, following)


def _add_damage(
    segment: Segment,
    start: int,
    first_offset: int,
    next_offset: int,
    bad: CorruptRange | None = None,
) -> None:
    if bad is None:
        bad = CorruptRange(segment.base_offset, start, segment.size, first_offset, next_offset)
    if bad in segment.corrupt_ranges:
        return
    segment.corrupt_ranges.append(bad)
    logger.error(
        "%s.log is damaged at bytes %d to %d: offsets %d to %d cannot be read, nothing was cut",
        segment.prefix,
        bad.start_position,
        bad.end_position - 1,
        first_offset,
        next_offset - 1,
    )


def _cut(segment: Segment, position: int, next_offset: int, disk: Disk) -> None:
    """Truncate a torn tail, and keep its bytes in a file beside the log."""
    length = segment.size - position
    if not length:
        return
    kept_path = segment.prefix + CUT_SUFFIX
    try:
        kept = disk.open_file(kept_path, create=True)
        kept.append((segment.file.read_at(position, min(length, CUT_BYTES_MAX)),))
        kept.close()
        where = f"to {kept_path}"
    except BrokerError as error:
        where = f"and could not keep them ({error})"
    segment.truncate(position, next_offset)
    segment.file.sync()  # or the next crash brings the tail back, behind which a new segment may be
    logger.warning(
        "%s.log had a torn tail: cut %d bytes at %d %s, the log continues at offset %d",
        segment.prefix,
        length,
        position,
        where,
        next_offset,
    )


def _read_corrupt_ranges(directory: str, disk: Disk) -> list[CorruptRange]:
    data = disk.read_file(f"{directory}/{CORRUPT_RANGES_FILE}")
    try:
        return [CorruptRange(*map(int, fields)) for fields in decode_lines(data or b"", 5)]
    except (CheckpointCorrupt, ValueError) as error:
        logger.warning("%s/%s is not usable: %s", directory, CORRUPT_RANGES_FILE, error)
        return []


def write_corrupt_ranges(directory: str, segments: Sequence[Segment], disk: Disk) -> None:
    """Persist the damaged ranges of the log, for the next start after a clean shutdown."""
    path = f"{directory}/{CORRUPT_RANGES_FILE}"
    damage = [bad for segment in segments for bad in segment.corrupt_ranges]
    if damage:
        lines = (" ".join(map(str, bad)) for bad in damage)
        disk.write_file(path, encode_lines(lines), sync=True)
    else:
        disk.unlink(path)
