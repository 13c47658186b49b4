"""The checker finds every planted fault, and nothing in a history without faults."""

import io
import itertools
from pathlib import Path

import pytest
from chaos.checker import check
from chaos.findings import EXAMPLES_MAX, MEANINGS, Findings, Kind
from chaos.history import (
    Action,
    Entry,
    HistoryDamaged,
    Operation,
    Phase,
    Recorder,
    decode,
    encode,
    read_history,
)
from histories import (
    LAST,
    PerfectLog,
    asked,
    assign,
    commit,
    committed,
    last,
    poll,
    revoke,
    send,
    sent,
    written,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def kinds(*operations: Operation | list[Operation]) -> list[Kind]:
    history: list[Operation] = []
    for each in operations:
        history += each if isinstance(each, list) else [each]
    return [finding.kind for finding in check(history).findings]


TWO = written(1, (0, 100), (1, 101))


def test_a_history_without_a_fault_is_clean() -> None:
    assert kinds(TWO, assign(2, 0), poll(2, (0, 100), (1, 101)), last((0, 100), (1, 101))) == []


def test_a_value_in_the_middle_that_the_last_reader_misses_is_a_lost_write() -> None:
    assert kinds(TWO, last((1, 101))) == [Kind.LOST_WRITE]


def test_a_value_that_was_read_once_and_is_gone_at_the_end_is_a_lost_write() -> None:
    unanswered = [send(1, 100), sent(1, 100, Phase.INFO)]
    gone = kinds(unanswered, poll(2, (0, 100)), written(1, (1, 101)), last((1, 101)))
    assert gone == [Kind.LOST_WRITE]


def test_an_acknowledged_value_at_the_end_that_no_reader_reads_is_unseen() -> None:
    assert kinds(TWO, last((0, 100))) == [Kind.UNSEEN]
    assert kinds(TWO) == [Kind.UNSEEN]


def test_a_value_acknowledged_at_an_unknown_offset_has_to_be_read_too() -> None:
    twice = [send(1, 100), sent(1, 100, Phase.OK)]
    assert kinds(twice, last((7, 100))) == []
    assert kinds(twice) == [Kind.UNSEEN]


def test_a_value_that_was_not_acknowledged_may_be_there_or_not() -> None:
    unanswered = [send(1, 100), sent(1, 100, Phase.INFO), send(1, 101)]
    assert kinds(unanswered) == []
    assert kinds(unanswered, last((0, 100), (1, 101))) == []


def test_one_value_at_two_offsets_is_a_duplicate() -> None:
    assert kinds(written(1, (0, 100)), last((0, 100), (1, 100))) == [Kind.DUPLICATE]
    # Even if it was never acknowledged.
    assert kinds(send(1, 100), last((0, 100), (1, 100))) == [Kind.DUPLICATE]


def test_a_value_acknowledged_at_another_offset_than_it_is_read_at_is_a_duplicate() -> None:
    assert kinds(written(1, (5, 100)), last((0, 100))) == [Kind.DUPLICATE]


def test_two_values_at_one_offset_are_inconsistent() -> None:
    both = [send(1, 100), send(2, 101)]
    found = kinds(both, poll(3, (0, 100)), poll(4, (0, 101)), last((0, 100)))
    assert Kind.INCONSISTENT_OFFSETS in found
    found = kinds(written(1, (0, 100)), written(2, (0, 101)), last((0, 100)))
    assert Kind.INCONSISTENT_OFFSETS in found


def test_partitions_are_checked_separately() -> None:
    other = written(1, (0, 100), partition="q")
    assert kinds(written(1, (0, 100)), other, last((0, 100)), last((0, 100), partition="q")) == []
    assert kinds(written(1, (0, 100)), other, last((0, 100))) == [Kind.UNSEEN]


def test_a_value_whose_send_failed_must_not_be_read() -> None:
    failed = [send(1, 100), sent(1, 100, Phase.FAIL)]
    assert kinds(failed) == []
    assert kinds(failed, last((0, 100))) == [Kind.ABORTED_READ]


def test_a_value_that_no_producer_sent_is_a_phantom() -> None:
    assert kinds(last((0, 100))) == [Kind.PHANTOM]


def test_going_past_a_value_is_a_skip() -> None:
    three = written(1, (0, 100), (1, 101), (2, 102))
    end = last((0, 100), (1, 101), (2, 102))
    assert kinds(three, assign(2, 0), poll(2, (0, 100), (2, 102)), end) == [Kind.POLL_SKIP]
    assert kinds(three, assign(2, 0), poll(2, (0, 100)), poll(2, (2, 102)), end) == [Kind.POLL_SKIP]


def test_beginning_behind_the_assigned_offset_is_a_skip() -> None:
    assert kinds(TWO, assign(2, 0), poll(2, (1, 101)), last((0, 100), (1, 101))) == [Kind.POLL_SKIP]


def test_going_past_offsets_that_hold_no_value_is_no_skip() -> None:
    around_a_marker = written(1, (0, 100), (2, 102))
    end = last((0, 100), (2, 102))
    assert kinds(around_a_marker, assign(2, 0), poll(2, (0, 100), (2, 102)), end) == []


def test_a_new_assignment_may_begin_anywhere() -> None:
    end = last((0, 100), (1, 101))
    assert kinds(TWO, assign(2, 0), poll(2, (0, 100)), assign(2, 0), poll(2, (0, 100)), end) == []
    assert kinds(TWO, poll(2, (1, 101)), revoke(2), poll(2, (0, 100)), end) == []


def test_an_offset_given_again_is_nonmonotonic() -> None:
    end = last((0, 100), (1, 101))
    again = kinds(TWO, assign(2, 0), poll(2, (0, 100), (1, 101)), poll(2, (1, 101)), end)
    assert again == [Kind.NONMONOTONIC_POLL]
    back = kinds(TWO, poll(2, (1, 101)), poll(2, (0, 100)), end)
    assert back == [Kind.NONMONOTONIC_POLL]


def test_readers_are_checked_separately() -> None:
    end = last((0, 100), (1, 101))
    assert kinds(TWO, poll(2, (0, 100), (1, 101)), poll(3, (0, 100), (1, 101)), end) == []


def test_sends_of_one_producer_out_of_order_are_nonmonotonic() -> None:
    first, second = send(1, 100), send(1, 101)
    end = last((0, 101), (1, 100))
    found = kinds(first, second, send(1, 100, 1), send(1, 101, 0), end)
    assert found == [Kind.NONMONOTONIC_SEND]


def test_answers_may_come_in_another_order_than_sends() -> None:
    first, second = send(1, 100), send(1, 101)
    end = last((0, 100), (1, 101))
    assert kinds(first, second, send(1, 101, 1), send(1, 100, 0), end) == []


def test_sends_of_two_producers_may_be_in_any_order() -> None:
    first, second = send(1, 100), send(2, 101)
    end = last((0, 101), (1, 100))
    assert kinds(first, second, send(1, 100, 1), send(2, 101, 0), end) == []


def test_an_acknowledged_commit_that_is_no_longer_there_has_regressed() -> None:
    done = [commit(1, Phase.INVOKE, 5), commit(1, Phase.OK, 5)]
    assert kinds(done, asked(2), committed(2, 5)) == []
    assert kinds(done, asked(2), committed(2, 4)) == [Kind.COMMIT_REGRESSED]
    assert kinds(done, asked(2), committed(2, None)) == [Kind.COMMIT_REGRESSED]


def test_a_commit_that_a_client_fetched_must_stay() -> None:
    seen = [commit(1, Phase.INVOKE, 5), commit(1, Phase.INFO, 5), asked(2), committed(2, 5)]
    assert kinds(seen, asked(2), committed(2, 5)) == []
    assert kinds(seen, asked(3), committed(3, 2)) == [Kind.COMMIT_REGRESSED]


def test_a_fetch_that_began_before_the_commit_may_miss_it() -> None:
    done = [commit(1, Phase.INVOKE, 5), commit(1, Phase.OK, 5)]
    assert kinds(asked(2), done, committed(2, 3)) == []
    assert kinds(asked(2), done, committed(2, phase=Phase.INFO)) == []


def test_a_member_that_begins_before_the_commit_has_seen_it_regress() -> None:
    done = [commit(1, Phase.INVOKE, 1), commit(1, Phase.OK, 1)]
    end = last((0, 100), (1, 101))
    assert kinds(TWO, done, assign(2, group="g"), poll(2, (1, 101)), end) == []
    begun = kinds(TWO, done, assign(2, group="g"), poll(2, (0, 100)), end)
    assert begun == [Kind.COMMIT_REGRESSED]


def test_a_member_that_begins_behind_every_commit_has_skipped() -> None:
    end = last((0, 100), (1, 101))
    assert kinds(TWO, assign(2, group="g"), poll(2, (1, 101)), end) == [Kind.POLL_SKIP]
    # A commit without an answer may count.
    tried = [commit(1, Phase.INVOKE, 1), commit(1, Phase.INFO, 1)]
    assert kinds(TWO, tried, assign(2, group="g"), poll(2, (1, 101)), end) == []
    assert kinds(TWO, tried, assign(2, group="g"), poll(2, (0, 100)), end) == []


def test_a_partition_taken_away_before_its_first_record_is_forgotten() -> None:
    end = last((0, 100), (1, 101))
    given_and_taken = [assign(2, group="g"), revoke(2, group="g")]
    assert kinds(TWO, given_and_taken, assign(2, 1), poll(2, (1, 101)), end) == []


def test_a_subscription_forgets_every_position() -> None:
    anew = Operation(process=2, phase=Phase.OK, action=Action.SUBSCRIBE)
    end = last((0, 100), (1, 101))
    assert kinds(TWO, poll(2, (1, 101)), anew, poll(2, (0, 100)), end) == []


def test_every_kind_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Kind)


def test_many_faults_at_one_place_are_one_finding_with_a_few_examples() -> None:
    findings = Findings()
    for number in range(10):
        findings.add(Kind.UNSEEN, "p", f"value {number}")
    (finding,) = findings
    assert finding.count == 10
    assert len(finding.examples) == EXAMPLES_MAX
    assert str(finding).startswith("unseen at p: value 0;")


@settings(max_examples=50)
@given(st.integers(min_value=0, max_value=2**32))
def test_whatever_a_perfect_log_gives_is_clean(seed: int) -> None:
    perfect = PerfectLog(seed)
    verdict = check(perfect.operations)
    assert verdict.findings == ()
    assert verdict.values_read == len(perfect.log)


@settings(max_examples=50)
@given(st.integers(min_value=0, max_value=2**32), st.data())
def test_a_fault_planted_anywhere_in_a_perfect_history_is_found(
    seed: int, data: st.DataObject
) -> None:
    perfect = PerfectLog(seed)
    expected, history = data.draw(st.sampled_from(PLANTS))(perfect, data)
    assert expected & {finding.kind for finding in check(history).findings}


def _lose(perfect: PerfectLog, data: st.DataObject) -> tuple[set[Kind], list[Operation]]:
    """An acknowledged record is missing at the end."""
    acknowledged = [
        (each.entries[0].offset, each.entries[0].value)
        for each in perfect.operations
        if each.action is Action.SEND and each.phase is Phase.OK and each.entries[0].offset
    ]
    lost = data.draw(st.sampled_from(acknowledged))
    rest = [record for record in perfect.log if record != lost]
    # A reader may have read beyond it before, so it may count as in the middle or at the end.
    return {Kind.LOST_WRITE, Kind.UNSEEN}, [*perfect.operations[:-1], last(*rest)]


def _polls(perfect: PerfectLog) -> list[Operation]:
    return [each for each in perfect.operations if each.action is Action.POLL]


def _double(perfect: PerfectLog, data: st.DataObject) -> tuple[set[Kind], list[Operation]]:
    """A record is there a second time, behind the others."""
    _, value = data.draw(st.sampled_from(perfect.log))
    more = [*perfect.log, (perfect.log[-1][0] + 1, value)]
    return {Kind.DUPLICATE}, [*perfect.operations[:-1], last(*more)]


def _replace(perfect: PerfectLog, data: st.DataObject) -> tuple[set[Kind], list[Operation]]:
    """A record has another value than a reader saw."""
    places = [each for each in _polls(perfect) if each.entries]
    seen = {entry.offset for each in places for entry in each.entries}
    if not seen:
        return _double(perfect, data)
    offset = data.draw(st.sampled_from(sorted(each for each in seen if each is not None)))
    wrong = [(at, -1 if at == offset else value) for at, value in perfect.log]
    return {Kind.INCONSISTENT_OFFSETS}, [*perfect.operations[:-1], last(*wrong)]


def _swap(perfect: PerfectLog, data: st.DataObject) -> tuple[set[Kind], list[Operation]]:
    """The last reader receives two records in the wrong order."""
    if len(perfect.log) < 2:
        return _double(perfect, data)
    at = data.draw(st.integers(min_value=0, max_value=len(perfect.log) - 2))
    wrong = list(perfect.log)
    wrong[at], wrong[at + 1] = wrong[at + 1], wrong[at]
    return {Kind.NONMONOTONIC_POLL}, [*perfect.operations[:-1], last(*wrong)]


def _skip(perfect: PerfectLog, data: st.DataObject) -> tuple[set[Kind], list[Operation]]:
    """Another reader skips one record."""
    if len(perfect.log) < 2:
        return _double(perfect, data)
    at = data.draw(st.integers(min_value=0, max_value=len(perfect.log) - 2))
    rest = perfect.log[:at] + perfect.log[at + 1 :]
    return {Kind.POLL_SKIP}, [*perfect.operations, assign(50, 0), poll(50, *rest)]


def _regress(perfect: PerfectLog, data: st.DataObject) -> tuple[set[Kind], list[Operation]]:
    """At the end the committed offset is lower than an acknowledged commit."""
    offset = data.draw(st.integers(min_value=1, max_value=1_000)) + 100_000
    end = [commit(20, Phase.INVOKE, offset), commit(20, Phase.OK, offset)]
    back = [asked(31), committed(31, data.draw(st.integers(0, offset - 1)))]
    return {Kind.COMMIT_REGRESSED}, [*perfect.operations, *end, *back]


PLANTS = (_lose, _double, _replace, _swap, _skip, _regress)


def test_the_last_reader_of_a_perfect_log_is_the_one_that_the_plants_change() -> None:
    assert PerfectLog(1).operations[-1].process == LAST


@settings(max_examples=50)
@given(
    st.builds(
        Operation,
        process=st.integers(0, 99),
        phase=st.sampled_from(Phase),
        action=st.sampled_from(Action),
        entries=st.lists(
            st.builds(
                Entry,
                st.text(max_size=9),
                st.none() | st.integers(0, 2**62),
                st.none() | st.integers(0, 2**62),
            ),
            max_size=3,
        ).map(tuple),
        time_ms=st.integers(0, 2**40),
        group=st.text(max_size=9),
        note=st.text(max_size=9),
    )
)
def test_a_line_decodes_to_the_operation_it_encodes(operation: Operation) -> None:
    line = encode(operation)
    assert line.count("\n") == 1
    assert decode(line) == operation


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"process":1,"phase":"no","action":"send","time":0,"entries":[]}',
        '{"process":1,"phase":"ok","action":"send","time":0,"entries":[["p",1,2,3]]}',
        '{"process":1,"phase":"ok","action":"send","time":0,"entries":7}',
    ],
)
def test_a_malformed_line_is_refused(line: str) -> None:
    with pytest.raises(HistoryDamaged):
        decode(line)


def test_what_was_recorded_is_read_back_in_order(tmp_path: Path) -> None:
    recorder = Recorder.create(tmp_path / "history.jsonl")
    process = recorder.new_process()
    for value in range(3):
        recorder.write(process, Phase.INVOKE, Action.SEND, [Entry("p", None, value)])
    recorder.close()
    history = list(read_history(tmp_path / "history.jsonl"))
    assert [each.entries[0].value for each in history] == [0, 1, 2]
    assert all(a.time_ms <= b.time_ms for a, b in itertools.pairwise(history))


def test_values_and_processes_are_never_given_twice() -> None:
    recorder = Recorder(io.StringIO())
    assert len({recorder.new_value() for _ in range(100)}) == 100
    assert len({recorder.new_process() for _ in range(100)}) == 100
