"""Which ids of schemas are registered: what is read of the registry's log, and what a broker remembers of answers."""

from hypothesis import given
from hypothesis import strategies as st

from zhumq.schemas.known_ids import (
    ASKED_MAX,
    KEPT_MAX,
    QUESTION_MAX,
    REFRESH_MS,
    UNREGISTERED_MS,
    KnownIds,
)
from zhumq.schemas.log_records import (
    ConfigRecord,
    DeleteSubjectRecord,
    LogRecord,
    NoopRecord,
    SchemaRecord,
)
from zhumq.schemas.registry import Registry
from zhumq.schemas.schema import Schema, SchemaType, Version
from zhumq.schemas.subject_ids import ANY_SUBJECT, SubjectIds

SUBJECTS = ("orders-value", "orders-key")
IDS = range(1, 5)
NUMBERS = range(1, 4)


def version(subject: str, number: int, id_: int, *, is_deleted: bool = False) -> SchemaRecord:
    value = Version(
        subject=subject,
        version=number,
        id=id_,
        schema=Schema(type=SchemaType.AVRO, text=f'"schema {id_}"'),
        is_deleted=is_deleted,
    )
    return SchemaRecord(subject=subject, version=number, value=value)


subjects, numbers = st.sampled_from(SUBJECTS), st.sampled_from(NUMBERS)
log_records: st.SearchStrategy[LogRecord] = st.one_of(
    st.builds(version, subjects, numbers, st.sampled_from(IDS), is_deleted=st.booleans()),
    st.builds(SchemaRecord, subject=subjects, version=numbers, value=st.none()),
    st.builds(DeleteSubjectRecord, subject=subjects, version=st.none() | numbers),
    st.builds(ConfigRecord, subject=st.none() | subjects, value=st.none()),
    st.builds(NoopRecord, max_id=st.sampled_from(IDS)),
)


@given(st.lists(log_records, max_size=30))
def test_the_ids_of_subjects_are_those_that_the_registry_lists(written: list[LogRecord]) -> None:
    registry, ids = Registry(), SubjectIds()
    for each in written:
        registry.replay(each)
        ids.replay(each)
    listed = {(subject, found.id) for subject in SUBJECTS for found in registry.versions(subject)}
    asked = [(subject, id_) for subject in (*SUBJECTS, ANY_SUBJECT) for id_ in IDS]
    assert ids.registered(asked) == listed | {(ANY_SUBJECT, id_) for _, id_ in listed}


FIRST, SECOND = ("orders-value", 1), ("orders-value", 2)


def test_an_id_is_asked_for_once_and_taken_after_the_answer() -> None:
    known = KnownIds()
    assert known.look_up([FIRST, SECOND], 0) == ([], [FIRST, SECOND])
    assert known.look_up([FIRST], 0).unknown == [FIRST]
    question = known.next_question()
    assert question == [FIRST, SECOND]
    known.look_up([FIRST], 1)
    assert not known.has_questions, "it is being asked for"
    known.answer(question, {FIRST}, 5)
    assert known.look_up([FIRST, SECOND], 6) == ([SECOND], [])
    assert not known.has_questions


def test_a_registered_id_is_asked_for_again_and_taken_meanwhile() -> None:
    known = KnownIds()
    known.look_up([FIRST], 0)
    known.answer(known.next_question(), {FIRST}, 0)
    assert known.look_up([FIRST], REFRESH_MS - 1) == ([], [])
    assert not known.has_questions
    assert known.look_up([FIRST], REFRESH_MS) == ([], [])
    known.next_question()
    known.fail()
    assert known.look_up([FIRST], 100 * REFRESH_MS) == ([], []), "the registry is away"
    known.answer(known.next_question(), set(), 100 * REFRESH_MS)
    assert known.look_up([FIRST], 100 * REFRESH_MS).unregistered == [FIRST]


def test_an_id_that_was_not_registered_is_asked_for_again_soon() -> None:
    known = KnownIds()
    known.look_up([FIRST], 0)
    known.answer(known.next_question(), set(), 0)
    assert known.look_up([FIRST], UNREGISTERED_MS - 1) == ([FIRST], [])
    assert not known.has_questions
    assert known.look_up([FIRST], UNREGISTERED_MS) == ([], [FIRST])
    known.answer(known.next_question(), {FIRST}, UNREGISTERED_MS)
    assert known.look_up([FIRST], UNREGISTERED_MS) == ([], [])


def test_what_is_kept_and_asked_is_bounded() -> None:
    known = KnownIds()
    ids = [("orders-value", each) for each in range(ASKED_MAX + 5)]
    assert len(known.look_up(ids, 0).unknown) == len(ids)
    asked = 0
    while known.has_questions:
        question = known.next_question()
        assert len(question) <= QUESTION_MAX
        asked += len(question)
        known.answer(question, set(), 0)
    assert asked == ASKED_MAX
    many = [("orders-value", each) for each in range(KEPT_MAX + 1)]
    known.answer(many, set(many), 0)
    assert known.look_up([many[0]], 0).unknown, "the oldest is forgotten"
    assert known.look_up([many[1], many[-1]], 0) == ([], [])
