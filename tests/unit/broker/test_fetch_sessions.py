import itertools
import uuid

import pytest

from zhumq.broker.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_GRACE_MS,
    FetchedPartition,
    FetchKey,
    FetchSessions,
)
from zhumq.model.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch


def key(partition: int) -> FetchKey:
    return FetchKey(uuid.UUID(int=1), "t", partition)


def fetched(partition: int, offset: int = 0) -> FetchedPartition:
    return FetchedPartition(key(partition), offset, 1024, -1)


def sessions(slots: int = 2) -> FetchSessions:
    ids = itertools.count(1)
    return FetchSessions(slots, lambda: next(ids))


def test_a_session_remembers_its_partitions_and_counts_its_epochs() -> None:
    cache = sessions()
    session = cache.open([fetched(0), fetched(1)], now_ms=0)
    assert session is not None
    again = cache.resume(session.session_id, 1, now_ms=1)
    again.update([fetched(1, offset=7), fetched(2)], [key(0)])
    assert [each.key.partition for each in again.partitions.values()] == [1, 2]
    assert again.partitions[key(1)].fetch_offset == 7
    assert cache.resume(session.session_id, 2, now_ms=2) is session


def test_a_request_out_of_step_begins_anew() -> None:
    cache = sessions()
    session = cache.open([fetched(0)], now_ms=0)
    assert session is not None
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.resume(session.session_id, 2, now_ms=0)
    with pytest.raises(FetchSessionIdNotFound):
        cache.resume(99, 1, now_ms=0)
    cache.end(session.session_id)
    with pytest.raises(FetchSessionIdNotFound):
        cache.resume(session.session_id, 1, now_ms=0)


def test_the_epoch_wraps_to_one() -> None:
    cache = sessions()
    session = cache.open([fetched(0)], now_ms=0)
    assert session is not None
    session.epoch = EPOCH_MAX
    assert cache.resume(session.session_id, EPOCH_MAX, now_ms=0).epoch == 1


def test_without_a_free_slot_only_a_session_long_unused_gives_way() -> None:
    cache = sessions(slots=2)
    first = cache.open([fetched(0)], now_ms=0)
    second = cache.open([fetched(0)], now_ms=10)
    assert first is not None
    assert second is not None
    assert cache.open([fetched(0)], now_ms=20) is None
    assert cache.open([fetched(0)], now_ms=EVICTION_GRACE_MS) is not None
    assert len(cache) == 2
    with pytest.raises(FetchSessionIdNotFound):
        cache.resume(first.session_id, 1, now_ms=EVICTION_GRACE_MS)


def test_a_partition_that_was_served_is_due_last() -> None:
    cache = sessions()
    session = cache.open([fetched(0), fetched(1), fetched(2)], now_ms=0)
    assert session is not None
    session.served(key(0))
    assert [each.key.partition for each in session.partitions.values()] == [1, 2, 0]
