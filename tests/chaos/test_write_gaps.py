"""The meters measure from the history how long writes stopped."""

from chaos.history import Action, Entry, Operation, Phase
from chaos.write_gaps import (
    GapMeter,
    Gaps,
    Interruption,
    LongGap,
    SilenceMeter,
    only_at,
)


def send(value: int, phase: Phase, time_ms: int, partition: str = "p") -> Operation:
    return Operation(
        process=1,
        phase=phase,
        action=Action.SEND,
        entries=(Entry(partition, None, value),),
        time_ms=time_ms,
    )


def commit(offset: int, phase: Phase, time_ms: int) -> Operation:
    return Operation(
        process=1,
        phase=phase,
        action=Action.COMMIT,
        entries=(Entry("p", offset),),
        time_ms=time_ms,
        group="g",
    )


def kill(time_ms: int, *places: str) -> Interruption:
    return Interruption(time_ms=time_ms, places=frozenset(places or ("p",)))


def write_gaps(history: list[Operation], kills: list[Interruption]) -> Gaps:
    meter = GapMeter(kills)
    for operation in history:
        meter.see(operation)
    return meter.gaps


def commit_gaps(history: list[Operation], kills: list[Interruption]) -> Gaps:
    meter = GapMeter(kills, Action.COMMIT)
    for operation in history:
        meter.see(operation)
    return meter.gaps


def test_the_gap_ends_with_the_first_success_of_what_was_begun_after_the_kill() -> None:
    history = [
        send(1, Phase.INVOKE, 90),
        send(1, Phase.OK, 105),  # answered before the kill
        send(2, Phase.INVOKE, 110),
        send(3, Phase.INVOKE, 120),
        send(3, Phase.OK, 900),
        send(2, Phase.OK, 950),
    ]
    assert write_gaps(history, [kill(100)]) == Gaps(gaps_ms=(800,), never=0)


def test_a_long_gap_is_reported_with_its_place_and_time() -> None:
    history = [send(1, Phase.INVOKE, 110), send(1, Phase.OK, 3_101)]
    (long,) = write_gaps(history, [kill(100)]).long
    assert long == LongGap(place="p", since_ms=100, lasted_ms=3_001)
    history = [send(1, Phase.INVOKE, 110), send(1, Phase.OK, 3_100)]
    assert write_gaps(history, [kill(100)]).long == ()


def test_only_the_partitions_that_were_hit_count() -> None:
    history = [
        send(1, Phase.INVOKE, 110, "q"),
        send(1, Phase.OK, 120, "q"),
        send(2, Phase.INVOKE, 130, "p"),
        send(2, Phase.OK, 500, "p"),
    ]
    assert write_gaps(history, [kill(100)]).gaps_ms == (400,)
    assert write_gaps(history, [kill(100, "p", "q")]).gaps_ms == (20, 400)


def test_interruptions_can_be_restricted_to_some_places() -> None:
    both, other = kill(100, "p", "q"), kill(200, "q")
    assert only_at([both, other], lambda place: place == "p") == [kill(100, "p")]


def test_a_failed_send_ends_no_gap() -> None:
    history = [send(1, Phase.INVOKE, 110), send(1, Phase.INFO, 120)]
    assert write_gaps(history, [kill(100)]) == Gaps(gaps_ms=(), never=1)


def test_a_kill_at_the_very_end_never_ends() -> None:
    assert write_gaps([send(1, Phase.INVOKE, 50)], [kill(100)]).never == 1


def test_two_kills_are_two_gaps() -> None:
    history = [
        send(1, Phase.INVOKE, 110),
        send(2, Phase.INVOKE, 310),
        send(2, Phase.OK, 400),
        send(1, Phase.OK, 500),
    ]
    assert sorted(write_gaps(history, [kill(300), kill(100)]).gaps_ms) == [100, 300]


def test_commits_are_measured_by_group() -> None:
    history = [
        commit(1, Phase.INVOKE, 110),
        commit(1, Phase.INFO, 200),
        commit(2, Phase.INVOKE, 210),
        commit(2, Phase.OK, 230),
    ]
    assert commit_gaps(history, [kill(100, "g")]).gaps_ms == (130,)
    assert write_gaps(history, [kill(100, "g")]).never == 1


def test_the_longest_silence_after_an_interruption_is_not_the_first() -> None:
    meter = SilenceMeter([kill(100), kill(1_000)])
    for time_ms in (50, 90, 110, 150, 650, 700, 1_010, 1_050):
        meter.see(send(time_ms, Phase.OK, time_ms))
        meter.see(send(time_ms, Phase.OK, time_ms, "q"))
    # From 150 to 650, and the silence that the second one interrupts: from 700 to 1,010.
    assert meter.gaps == Gaps(gaps_ms=(500, 310), never=0)


def test_percentiles_are_gaps_that_were_measured() -> None:
    gaps = Gaps(gaps_ms=tuple(range(100, 0, -1)), never=0)
    assert (gaps.percentile(0.5), gaps.percentile(0.99), gaps.percentile(1.0)) == (50, 99, 100)
    assert Gaps(gaps_ms=(7,), never=0).percentile(0.5) == 7
    assert Gaps(gaps_ms=(), never=0).percentile(0.5) == 0
    assert "p99 99 ms" in str(gaps)
    assert "2 never ended" in str(Gaps(gaps_ms=(), never=2))
