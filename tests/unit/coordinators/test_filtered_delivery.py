"""Share partitions with a filter on real logs: skipped messages are done, counted and persisted."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from delivery_support import World, accept, broker_without_listeners, offsets_of, reject, run, until

from zhumq.coordinators import filter_rounds, filtered_batches, filtered_progress, filtered_reader
from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.filters.filter import Filter, compile_filter
from zhumq.push.stream_partitions import StreamPartitions
from zhumq.records.batch import Record, RecordHeader, batches, records
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression
from zhumq.share.subscription import SubscriptionMode
from zhumq.testing.disk import MemoryDisk

SHARED = SubscriptionMode.PTP_SHARED
EVERY = 10  # one message of so many has the tag `rare`


def tagged(number: int) -> Record:
    tags = b"rare" if number % EVERY == 0 else b"common"
    return Record(
        value=b"%d" % number,
        timestamp=1_000,
        headers=(RecordHeader("zhumq-tags", tags), RecordHeader("n", b"%d" % number)),
    )


def fill_tagged(
    world: World, count: int, *, batch: int = 25, compression: Compression = Compression.NONE
) -> None:
    served = world.partition("t")
    first = served.log_end_offset
    for begin in range(first, first + count, batch):
        numbers = range(begin, min(begin + batch, first + count))
        served.append(
            build_batch([tagged(each) for each in numbers], compression=compression), 1_000
        )


def the_filter(text: str) -> Filter:
    compiled = compile_filter(text)
    assert compiled is not None
    return compiled


@pytest.mark.parametrize("compression", list(Compression))
def test_only_matching_offsets_are_acquired_and_only_their_records_sent(
    compression: Compression,
) -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 100, compression=compression)
            delivery = await world.open()
            delivered = delivery.acquire("ann", records_max=100, message_filter=the_filter("rare"))
            assert offsets_of(delivered) == list(range(0, 100, EVERY))
            sent = [record for each in delivered for record in records(each.records)]
            assert {0, 10, 90} <= {each.offset for each in sent}
            assert all(batch.crc_matches for each in delivered for batch in batches(each.records))
            assert [each.value for each in sent] == [b"%d" % each.offset for each in sent]
            if compression is Compression.NONE:
                assert [each.offset for each in sent] == list(range(0, 100, EVERY))
            assert delivery.filtered_total == 90
            await delivery.acknowledge("ann", [accept(0, 0), accept(10, 10)])
            assert (delivery.start_offset, delivery.in_flight) == (20, 8)

    run(scenario)


def test_small_credits_get_all_matches_one_after_the_other() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 200)
            delivery = await world.open()
            rare = the_filter("rare")
            seen: list[int] = []
            while found := offsets_of(delivery.acquire("ann", records_max=1, message_filter=rare)):
                seen += found
            assert seen == list(range(0, 200, EVERY))

    run(scenario)


def test_a_changed_filter_applies_from_the_next_acquired_message() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 100)
            delivery = await world.open()
            rare, low = the_filter("rare"), the_filter("n < 95 AND n % 2 = 1")
            assert offsets_of(delivery.acquire("ann", records_max=3, message_filter=rare)) == [
                0,
                10,
                20,
            ]
            odd = offsets_of(delivery.acquire("ann", records_max=37, message_filter=low))
            assert odd == list(range(21, 95, 2)), "what the first filter excluded stays done"
            rest = offsets_of(delivery.acquire("ann", records_max=99))
            assert rest == [94, 95, 96, 97, 98, 99]

    run(scenario)


def test_skipped_messages_stay_skipped_after_a_restart_with_another_filter() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        async with broker_without_listeners(disk) as world:
            await world.make_topic()
            fill_tagged(world, 100)
            delivery = await world.open()
            none = the_filter("n = 'no such message'")
            assert delivery.acquire("ann", records_max=9, message_filter=none) == []
            assert (delivery.start_offset, delivery.lag) == (100, 0)
        async with broker_without_listeners(disk) as world:
            delivery = await world.open()
            assert delivery.start_offset == 100
            assert delivery.acquire("ann", records_max=9) == []

    run(scenario)


def test_the_progress_of_a_filter_survives_a_crash_once_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filtered_progress, "WRITTEN_SECONDS", 0.01)

    async def scenario() -> None:
        disk = MemoryDisk()
        async with broker_without_listeners(disk, crash=True) as world:
            await world.make_topic()
            fill_tagged(world, 100)
            served = world.partition("t")
            await served.when_durable(served.log_end_offset)
            delivery = await world.open()
            assert offsets_of(
                delivery.acquire("ann", records_max=1, message_filter=the_filter("n >= 50"))
            ) == [50]

            async def persisted() -> int:
                (described,) = await world.service.share_partitions_of("g")
                return int(described.start_offset)

            while await persisted() != 50:
                await asyncio.sleep(0.005)
        async with broker_without_listeners(disk) as world:
            delivery = await world.open()
            assert delivery.start_offset == 50
            assert offsets_of(delivery.acquire("ann", records_max=2)) == [50, 51]

    run(scenario)


def test_a_scan_of_many_messages_goes_on_after_others_were_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filtered_reader, "SCANNED_RECORDS_MAX", 20)
    monkeypatch.setattr(filtered_batches, "READ_BYTES", 1)  # one batch a read

    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 1_000)
            delivery = await world.open()
            last = the_filter("n = 999")
            found: list[int] = []
            turns = 0

            def again() -> None:
                nonlocal turns
                turns += 1
                found.extend(
                    offsets_of(delivery.acquire("ann", records_max=1, message_filter=last))
                )

            delivery.watch(again)
            again()
            assert found == [], "the first turn ends early"
            await until(lambda: found == [999])
            assert turns > 10
            assert delivery.filtered_total == 999

    run(scenario)


def test_groups_with_different_filters_share_decoded_batches() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 100)
            for number in range(30):
                delivery = await world.open(f"g{number}", mode=SHARED)
                expected = the_filter(f"n = '{number}'")
                assert offsets_of(
                    delivery.acquire("ann", records_max=9, message_filter=expected)
                ) == [number]

    run(scenario)


def test_a_stream_sends_what_passes_of_several_reads_in_one_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filtered_batches, "READ_BYTES", 1)  # one batch a read

    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 200)
            stream_partitions = StreamPartitions(lambda: None)
            stream_partitions.add(await world.open())
            taken = stream_partitions.take("ann", 99, 30_000, math.inf, the_filter("rare"))
            assert isinstance(taken, tuple)
            stream_partition, delivered = taken
            messages = stream_partition.frame(delivered).messages
            assert offsets_of([delivered]) == list(range(0, 200, EVERY))
            assert [each.first_offset for each in messages.ranges] == list(range(0, 200, EVERY))
            assert [each.offset for each in records(messages.records)] == list(range(0, 200, EVERY))
            assert stream_partitions.take("ann", 99, 30_000, math.inf, the_filter("rare")) is None

    run(scenario)


def test_many_groups_get_their_messages_in_rounds_and_decode_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filter_rounds, "LOOKS_PER_SECOND", 200)  # of 20 groups: a pause of 100 ms
    decoded: list[tuple[int, int]] = []

    class Counted(filtered_batches.DecodedSlice):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            decoded.append((self.spans[0].first_offset, self.spans[-1].last_offset))

    monkeypatch.setattr(filtered_batches, "DecodedSlice", Counted)

    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            found: dict[int, list[int]] = {number: [] for number in range(20)}

            def look_of(number: int, delivery: SharePartitionDelivery) -> Callable[[], None]:
                chosen = the_filter(f"n % 20 = {number}")

                def look() -> None:
                    while given := delivery.acquire("ann", records_max=9, message_filter=chosen):
                        found[number] += offsets_of(given)

                return look

            for number in range(20):
                delivery = await world.open(f"g{number}", mode=SHARED)
                delivery.watch(look_of(number, delivery))
            for end in range(40, 2_001, 40):
                fill_tagged(world, 40, batch=10)
                # A message of each batch reaches its group, one round later.
                await until(lambda end=end: sum(map(len, found.values())) >= end - 40)
            await until(lambda: sum(map(len, found.values())) == 2_000)
            assert found == {number: list(range(number, 2_000, 20)) for number in range(20)}
            # Not one for each group and batch: that would be 4,000.
            assert len(decoded) == len(set(decoded)) < 200

    run(scenario)


def test_a_batch_that_decompresses_to_too_much_is_delivered_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(filtered_batches, "BATCH_BYTES_MAX", 100)

    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 25, compression=Compression.ZSTD)
            fill_tagged(world, 25)
            delivery = await world.open()
            acquired = delivery.acquire("ann", records_max=99, message_filter=the_filter("rare"))
            assert offsets_of(acquired) == [*range(25), 30, 40]
            assert "cannot be filtered" in caplog.text

    run(scenario)


def test_batches_that_together_decompress_to_too_much_are_read_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(filtered_batches, "BATCH_BYTES_MAX", 2_000)  # one batch of 25 has about 900

    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 250, compression=Compression.ZSTD)
            delivery = await world.open()
            acquired = delivery.acquire("ann", records_max=99, message_filter=the_filter("rare"))
            assert offsets_of(acquired) == list(range(0, 250, EVERY))
            assert len(acquired) >= 4, "one for each read"
            assert "cannot be filtered" not in caplog.text

    run(scenario)


def test_rejected_messages_become_dead_letters_with_a_filter() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 40)
            delivery = await world.open()
            delivery.acquire("ann", records_max=2, message_filter=the_filter("rare"))
            await delivery.acknowledge("ann", [reject(10, 10, "bad"), accept(0, 0)])
            await delivery.settle()
            (dead_letter,) = world.dead_letters()
            assert dead_letter.value == b"10"
            assert delivery.start_offset == 11

    run(scenario)


def test_a_message_whose_lock_expired_is_delivered_again_with_a_filter() -> None:
    async def scenario() -> None:
        async with broker_without_listeners(MemoryDisk()) as world:
            await world.make_topic()
            fill_tagged(world, 40)
            delivery = await world.open()
            rare = the_filter("rare")
            again: list[int] = []
            delivery.acquire("ann", records_max=1, lock_ms=1, message_filter=rare)
            await until(lambda: delivery.in_flight == 0)
            again = offsets_of(delivery.acquire("bob", records_max=2, message_filter=rare))
            assert again == [0, 10]

    run(scenario)
