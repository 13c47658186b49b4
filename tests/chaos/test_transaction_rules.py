"""The checker finds every planted fault of transactions, and nothing in a history without faults."""

from chaos.checker import check
from chaos.findings import Kind
from chaos.history import Operation, Phase, decode, encode
from chaos.transaction_rules import STILL_MS_MAX
from chaos.transaction_table import ABORT, COMMIT
from histories import assign, last, poll
from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_histories import (
    PerfectTransactions,
    aborted_transaction,
    begin,
    committed_transaction,
    consumed,
    end,
    init,
    last_stable,
)


def kinds(*operations: Operation | list[Operation]) -> set[Kind]:
    history: list[Operation] = []
    for each in operations:
        history += each if isinstance(each, list) else [each]
    return {finding.kind for finding in check(history).findings}


ON_TWO = committed_transaction(1, ("p", 100), ("q", 101))
END_P, END_Q = last((0, 100), partition="p"), last((0, 101), partition="q")


def test_a_committed_transaction_that_is_read_whole_is_clean() -> None:
    assert kinds(init(1), ON_TWO, poll(2, (0, 100)), END_P, END_Q) == set()


def test_an_aborted_transaction_that_no_client_reads_is_clean() -> None:
    assert kinds(aborted_transaction(1, ("p", 100)), ON_TWO[:0]) == set()
    assert kinds(begin(1, ("p", 100))) == set()


def test_a_commit_without_an_answer_may_be_there_or_not() -> None:
    unknown = [
        begin(1, ("p", 100), ("q", 101)),
        end(1, Phase.INVOKE, COMMIT),
        end(1, Phase.INFO, COMMIT),
    ]
    assert kinds(unknown) == set()
    assert kinds(unknown, END_P, END_Q) == set()


def test_a_value_of_an_aborted_transaction_that_is_read_is_an_aborted_read() -> None:
    assert Kind.ABORTED_READ in kinds(aborted_transaction(1, ("p", 100)), poll(2, (0, 100)), END_P)
    asked_first = [
        begin(1, ("p", 100)),
        end(1, Phase.INVOKE, COMMIT),
        end(1, Phase.INVOKE, ABORT),
        end(1, Phase.OK, ABORT),
    ]
    assert kinds(asked_first, poll(2, (0, 100)), END_P) == {Kind.ABORTED_READ}


def test_a_value_that_is_read_before_the_commit_was_asked_for_is_an_intermediate_read() -> None:
    found = kinds(ON_TWO[0], poll(2, (0, 100)), ON_TWO[1:], END_P, END_Q)
    assert found == {Kind.INTERMEDIATE_READ}


def test_a_value_of_an_open_transaction_that_another_consumes_is_an_intermediate_read() -> None:
    copies = [
        begin(3, ("q", 200), transactional_id="y"),
        consumed(3, ("p", 0, 100)),
        end(3, Phase.INVOKE, COMMIT),
        end(3, Phase.OK, COMMIT),
    ]
    writes = committed_transaction(1, ("p", 100))
    ends = [END_P, last((0, 200), partition="q")]
    assert kinds(writes[0], copies, writes[1:], ends) == {Kind.INTERMEDIATE_READ}
    assert kinds(writes, copies, ends) == set()


def test_a_committed_transaction_of_which_nothing_is_left_is_a_lost_write() -> None:
    other = committed_transaction(1, ("p", 200))
    assert Kind.LOST_WRITE in kinds(
        committed_transaction(1, ("p", 100)), poll(2, (0, 100)), other, last((2, 200))
    )
    assert Kind.UNSEEN in kinds(committed_transaction(1, ("p", 100)), other, last((2, 200)))


def test_a_transaction_that_is_there_in_one_partition_alone_is_torn() -> None:
    assert Kind.TORN_TRANSACTION in kinds(ON_TWO, END_P)
    unknown = [*ON_TWO[:2], end(1, Phase.INFO, COMMIT)]
    assert kinds(unknown, END_P) == {Kind.TORN_TRANSACTION}


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    found = kinds(committed_transaction(1, ("p", 100)), last((0, 100), (2, 100)))
    assert found == {Kind.DUPLICATE}


def test_transactions_of_one_id_in_different_orders_are_a_write_cycle() -> None:
    two = [
        *committed_transaction(1, ("p", 100), ("q", 101)),
        *committed_transaction(1, ("p", 200), ("q", 201)),
    ]
    in_order = [last((0, 100), (2, 200)), last((0, 101), (2, 201), partition="q")]
    swapped = [last((0, 100), (2, 200)), last((0, 201), (2, 101), partition="q")]
    assert kinds(two, in_order) == set()
    assert kinds(two, swapped) == {Kind.WRITE_CYCLE}


def test_a_value_delayed_past_the_next_transaction_of_its_id_is_a_write_cycle() -> None:
    two = [*committed_transaction(1, ("p", 100)), *committed_transaction(1, ("p", 200))]
    assert kinds(two, last((0, 200), (2, 100))) == {Kind.WRITE_CYCLE}


def test_transactions_of_different_ids_may_lie_in_different_orders() -> None:
    two = [
        *committed_transaction(1, ("p", 100), ("q", 101)),
        *committed_transaction(2, ("p", 200), ("q", 201), transactional_id="y"),
    ]
    swapped = [last((0, 100), (2, 200)), last((0, 201), (2, 101), partition="q")]
    assert kinds(two, swapped) == set()


def test_two_transactions_that_consume_of_each_other_are_a_read_cycle() -> None:
    one, two = (
        begin(1, ("p", 100)),
        begin(2, ("q", 200), transactional_id="y"),
    )
    both = [
        one,
        two,
        end(1, Phase.INVOKE, COMMIT),
        end(2, Phase.INVOKE, COMMIT),
        consumed(1, ("q", 0, 200)),
        consumed(2, ("p", 0, 100)),
        end(1, Phase.OK, COMMIT),
        end(2, Phase.OK, COMMIT),
    ]
    assert kinds(both, END_P, last((0, 200), partition="q")) == {Kind.READ_CYCLE}


def test_a_transaction_that_consumes_its_own_value_is_a_read_cycle() -> None:
    own = [
        begin(1, ("p", 100)),
        end(1, Phase.INVOKE, COMMIT),
        consumed(1, ("p", 0, 100)),
        end(1, Phase.OK, COMMIT),
    ]
    assert kinds(own, END_P) == {Kind.READ_CYCLE}


def test_a_commit_after_another_process_took_over_the_id_is_a_zombie_commit() -> None:
    zombie = committed_transaction(1, ("p", 100))
    assert kinds(init(1), zombie[0], init(2), zombie[1:], END_P) == {Kind.ZOMBIE_COMMIT}
    assert kinds(init(1), zombie[:2], init(2), zombie[2:], END_P) == set()
    refused = [zombie[0], init(2), end(1, Phase.INVOKE, COMMIT), end(1, Phase.INFO, COMMIT)]
    assert kinds(init(1), refused) == set()
    assert kinds(init(1), refused, END_P) == {Kind.ZOMBIE_COMMIT}


def copy(process: int, offset: int, value: int, copied: int) -> list[Operation]:
    return [
        begin(process, ("q", copied), transactional_id="copy"),
        consumed(process, ("p", offset, value)),
        end(process, Phase.INVOKE, COMMIT, "copy"),
        end(process, Phase.OK, COMMIT, "copy"),
    ]


def test_a_value_that_two_committed_transactions_consume_is_consumed_twice() -> None:
    source = committed_transaction(1, ("p", 100))
    once = [*copy(3, 0, 100, 200), END_P]
    assert kinds(source, once, last((0, 200), partition="q")) == set()
    twice = [*copy(3, 0, 100, 201), last((0, 200), (2, 201), partition="q")]
    assert kinds(source, once, twice) == {Kind.CONSUMED_TWICE}


def test_a_value_that_an_aborted_transaction_consumed_is_consumed_again() -> None:
    source = committed_transaction(1, ("p", 100))
    aborted = [
        begin(3, ("q", 199), transactional_id="copy"),
        consumed(3, ("p", 0, 100)),
        end(3, Phase.INVOKE, ABORT, "copy"),
        end(3, Phase.OK, ABORT, "copy"),
    ]
    ends = [END_P, last((2, 200), partition="q")]
    assert kinds(source, aborted, copy(3, 0, 100, 200), ends) == set()


def test_a_value_that_no_transaction_consumed_at_the_end_is_reported() -> None:
    source = [*committed_transaction(1, ("p", 100)), *committed_transaction(1, ("p", 110))]
    ends = [last((0, 100), (2, 110)), last((0, 200), partition="q")]
    assert kinds(source, copy(3, 0, 100, 200), ends) == {Kind.NOT_CONSUMED}


def test_a_last_stable_offset_that_stands_still_below_the_high_watermark_is_reported_once() -> None:
    stuck = [last_stable(time_ms, 5, 9) for time_ms in range(0, 3 * STILL_MS_MAX, 1_000)]
    findings = check(stuck).findings
    assert [(each.kind, each.count) for each in findings] == [(Kind.LAST_STABLE_STUCK, 1)]


def test_a_last_stable_offset_at_the_high_watermark_may_stand_still() -> None:
    assert kinds([last_stable(each, 9, 9) for each in range(0, 3 * STILL_MS_MAX, 1_000)]) == set()


def test_a_last_stable_offset_that_moves_in_time_is_clean() -> None:
    moving = [
        last_stable(time_ms, time_ms // STILL_MS_MAX, 99)
        for time_ms in range(0, 5 * STILL_MS_MAX, 1_000)
    ]
    assert kinds(moving) == set()


def test_a_reader_that_skips_a_committed_value_is_found_across_aborted_ones() -> None:
    history = [
        *committed_transaction(1, ("p", 100)),
        *aborted_transaction(1, ("p", 110)),
        *committed_transaction(1, ("p", 120)),
        assign(2, 0),
    ]
    ends = last((0, 100), (4, 120))
    assert kinds(history, poll(2, (0, 100), (4, 120)), ends) == set()
    assert kinds(history, poll(2, (4, 120)), ends) == {Kind.POLL_SKIP}


def test_outcomes_are_counted() -> None:
    verdict = check(
        [
            *committed_transaction(1, ("p", 100)),
            *aborted_transaction(1, ("p", 110)),
            begin(1, ("p", 120)),
            end(1, Phase.INVOKE, COMMIT),
            last((0, 100)),
        ]
    )
    assert verdict.is_clean
    assert (
        verdict.transactions_committed,
        verdict.transactions_aborted,
        verdict.transactions_unknown,
    ) == (1, 1, 1)
    assert (verdict.sends_acknowledged, verdict.sends_failed, verdict.sends_unknown) == (1, 1, 1)


@given(st.integers(0, 2**32))
@settings(max_examples=100)
def test_no_fault_is_found_where_there_is_none(seed: int) -> None:
    perfect = PerfectTransactions(seed)
    assert check(decode(encode(each)) for each in perfect.operations).findings == ()


@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_a_value_that_is_gone_is_always_found(seed: int, draw: st.DrawFn) -> None:
    perfect = PerfectTransactions(seed)
    partition = draw.choice([name for name, records in perfect.visible.items() if records] or [""])
    if not partition:
        return
    gone = draw.choice(perfect.visible[partition])
    history = [
        last(*(each for each in records if each != gone), partition=name)
        for name, records in perfect.visible.items()
    ]
    found = kinds(perfect.operations[: -len(history)], history)
    assert found & {Kind.LOST_WRITE, Kind.UNSEEN, Kind.TORN_TRANSACTION}


def test_a_read_cycle_is_found_beside_a_write_cycle() -> None:
    swapped = [*committed_transaction(7, ("r", 300)), *committed_transaction(7, ("r", 400))]
    own = [
        begin(1, ("p", 100), transactional_id="y"),
        end(1, Phase.INVOKE, COMMIT),
        consumed(1, ("p", 0, 100)),
        end(1, Phase.OK, COMMIT),
    ]
    found = kinds(swapped, own, END_P, last((0, 400), (2, 300), partition="r"))
    assert found == {Kind.WRITE_CYCLE, Kind.READ_CYCLE}
