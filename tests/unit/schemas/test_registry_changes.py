"""Changes of the registry: versions, ids, deletes, modes and levels, and what a replay of the log makes of them."""

import pytest
from registry_support import FORMATS, Log, avro, record

from zhumq.schemas import changes
from zhumq.schemas.changes import NewSchema
from zhumq.schemas.errors import (
    IdTaken,
    Incompatible,
    InvalidSchema,
    InvalidSubject,
    LevelNotConfigured,
    ModeNotConfigured,
    NotPermitted,
    ReferenceExists,
    SchemaNotFound,
    SchemaTooLarge,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from zhumq.schemas.log_records import DeleteSubjectRecord, SchemaRecord
from zhumq.schemas.schema import TEXT_CHARACTERS_MAX, Level, Mode, Reference, SubjectConfig

ONE = record("Order", id="string")
TWO = record("Order", id="string", total=("int", 0))
OTHER = record("Customer", name="string")


@pytest.fixture
def log() -> Log:
    return Log()


def set_level(log: Log, level: Level, subject: str | None = None) -> None:
    config = SubjectConfig(level=level)
    log.change(lambda registry: changes.set_config(registry, subject, config))


def set_mode(log: Log, mode: Mode, subject: str | None = None, *, force: bool = False) -> None:
    log.change(lambda registry: changes.set_mode(registry, subject, mode, force=force))


def delete(log: Log, subject: str, version: int | None, *, permanent: bool = False) -> int:
    return log.change(
        lambda registry: changes.delete_version(registry, subject, version, permanent=permanent)
    )


def delete_all(log: Log, subject: str, *, permanent: bool = False) -> list[int]:
    return log.change(
        lambda registry: changes.delete_subject(registry, subject, permanent=permanent)
    )


def test_a_subject_counts_its_versions_and_all_subjects_share_the_ids(log: Log) -> None:
    made = [log.register("a", ONE), log.register("a", TWO), log.register("b", TWO)]
    assert [(each.version, each.id) for each in made] == [(1, 1), (2, 2), (1, 2)]
    assert log.registry.subjects() == ["a", "b"]
    assert [each.subject for each in log.registry.with_id(2)] == ["a", "b"]
    assert log.registry.version("a", None).version == 2


def test_a_schema_that_is_there_is_not_written_again(log: Log) -> None:
    first = log.register("a", ONE)
    spaced = '{ "name": "Order", "type": "record",\n "fields": [{"type": {"type": "string"}, "name": "id"}] }'
    count = len(log.messages)
    assert log.register("a", spaced) == first
    assert len(log.messages) == count


@pytest.mark.parametrize("subject", ["", "x" * 1001, "a\nb", "__GLOBAL", ":.ctx:a"])
def test_some_names_cannot_be_subjects(log: Log, subject: str) -> None:
    with pytest.raises(InvalidSubject):
        log.register(subject, ONE)


def test_what_is_no_schema_is_refused(log: Log) -> None:
    for text in (
        "",
        " ",
        "{",
        '{"type": "record"}',
        '"nothing"',
        "[" * 100_000,
        '{"type": 5}',
        "NaN",
    ):
        with pytest.raises(InvalidSchema):
            log.register("a", text)
    with pytest.raises(SchemaTooLarge):
        log.register("a", '"' + "x" * TEXT_CHARACTERS_MAX + '"')
    assert log.messages == []


def test_the_level_of_the_subject_decides(log: Log) -> None:
    log.register("a", ONE)
    breaking = record("Order", number="int")
    with pytest.raises(Incompatible, match="version 1: the new schema cannot read it: at /number"):
        log.register("a", breaking)
    set_level(log, Level.NONE, "a")
    assert log.register("a", breaking).version == 2
    set_level(log, Level.FULL)
    assert log.registry.level("a") is Level.NONE
    log.change(lambda registry: changes.delete_config(registry, "a"))
    assert log.registry.level("a") is Level.FULL
    with pytest.raises(LevelNotConfigured):
        log.change(lambda registry: changes.delete_config(registry, "a"))


def test_a_transitive_level_looks_at_all_versions(log: Log) -> None:
    # The third reads the second and not the first.
    steps = [record("R"), record("R", x=("int", 1)), record("R", x="int")]
    for level, is_permitted in (
        (Level.BACKWARD, True),
        (Level.BACKWARD_TRANSITIVE, False),
    ):
        subject = str(level)
        set_level(log, level, subject)
        log.register(subject, steps[0])
        log.register(subject, steps[1])
        if is_permitted:
            assert log.register(subject, steps[2]).version == 3
        else:
            with pytest.raises(Incompatible, match="version 1"):
                log.register(subject, steps[2])


def test_deleted_versions_are_found_by_id_and_by_those_who_ask_for_them(log: Log) -> None:
    log.register("a", ONE)
    log.register("a", TWO)
    with pytest.raises(VersionNotSoftDeleted):
        delete(log, "a", 1, permanent=True)
    assert delete(log, "a", 1) == 1
    with pytest.raises(VersionSoftDeleted):
        delete(log, "a", 1)
    with pytest.raises(VersionNotFound):
        log.registry.version("a", 1)
    assert log.registry.version("a", 1, deleted=True).is_deleted
    assert log.registry.schema(1).text
    assert delete(log, "a", 1, permanent=True) == 1
    with pytest.raises(SchemaNotFound):
        log.registry.schema(1)
    with pytest.raises(VersionNotFound):
        delete(log, "a", 7)
    assert delete(log, "a", None) == 2
    with pytest.raises(SubjectNotFound):
        log.registry.version("a", None)


def test_a_subject_is_deleted_in_two_steps(log: Log) -> None:
    log.register("a", ONE)
    log.register("a", TWO)
    set_level(log, Level.FULL, "a")
    with pytest.raises(SubjectNotFound):
        delete_all(log, "b")
    with pytest.raises(SubjectNotSoftDeleted):
        delete_all(log, "a", permanent=True)
    assert delete_all(log, "a") == [1, 2]
    assert log.registry.subjects() == []
    assert log.registry.subjects(deleted=True) == ["a"]
    assert log.registry.subjects(deleted_only=True) == ["a"]
    with pytest.raises(SubjectSoftDeleted):
        delete_all(log, "a")
    assert delete_all(log, "a", permanent=True) == [1, 2]
    assert log.registry.subjects(deleted=True) == []
    assert not log.registry.has_config("a")


def test_a_schema_that_was_deleted_comes_back_with_its_id(log: Log) -> None:
    first = log.register("a", ONE)
    delete_all(log, "a")
    again = log.register("a", ONE)
    assert (again.version, again.id) == (2, first.id)
    assert [each.version for each in log.registry.versions("a", deleted=True)] == [2]


def test_an_id_is_never_given_twice_even_after_compaction(log: Log) -> None:
    log.register("a", ONE)
    last = log.register("b", OTHER)
    delete_all(log, "b")
    delete_all(log, "b", permanent=True)
    restarted = log.compacted()
    assert restarted.registry.subjects(deleted=True) == ["a"]
    assert restarted.register("c", TWO).id == last.id + 1


def test_a_replay_of_the_log_makes_the_same_registry(log: Log) -> None:
    log.register("a", ONE)
    log.register("a", TWO)
    log.register("b", OTHER)
    delete(log, "a", 1)
    delete_all(log, "b")
    set_level(log, Level.FORWARD, "a")
    set_mode(log, Mode.READONLY, "a")
    for after in (log.compacted(), log):
        assert [each.version for each in after.registry.versions("a")] == [2]
        assert after.registry.subjects() == ["a"]
        assert after.registry.level("a") is Level.FORWARD
        assert after.registry.mode("a") is Mode.READONLY
        assert after.registry.max_id == 3


def test_references_are_kept_together(log: Log) -> None:
    log.register("customer", {**OTHER, "namespace": "shop"})
    reference = Reference(name="shop.Customer", subject="customer", version=1)
    order = record("Order", by="shop.Customer")
    with pytest.raises(InvalidSchema, match="no Avro type"):
        log.register("order", order)
    made = log.register("order", order, references=[reference])
    assert [each.id for each in log.registry.referrers("customer", 1)] == [made.id]
    with pytest.raises(ReferenceExists):
        delete(log, "customer", 1)
    with pytest.raises(ReferenceExists):
        delete_all(log, "customer")
    delete_all(log, "order")
    delete_all(log, "customer")
    # A deleted schema may come back, and would have lost what it refers to.
    with pytest.raises(ReferenceExists):
        delete_all(log, "customer", permanent=True)
    delete_all(log, "order", permanent=True)
    delete_all(log, "customer", permanent=True)


def test_a_reference_that_leads_nowhere_or_in_a_circle_is_refused(log: Log) -> None:
    nowhere = Reference(name="x", subject="missing", version=3)
    with pytest.raises(InvalidSchema, match="version 3 of 'missing'"):
        log.register("a", ONE, references=[nowhere])
    # No change makes a circle; a Kafka client may write one to the log.
    for name, other in (("p", "q"), ("q", "p")):
        version = log.register(name, record(name.upper()))
        to = Reference(name=other, subject=other, version=1)
        circle = avro(version.schema.text, to)
        made = changes.Version(subject=name, version=1, id=version.id, schema=circle)
        log.write(SchemaRecord(subject=name, version=1, value=made))
    with pytest.raises(InvalidSchema, match="circle"):
        log.register("a", ONE, references=[Reference(name="p", subject="p", version=1)])


def test_modes_permit_what_their_names_say(log: Log) -> None:
    log.register("a", ONE)
    set_mode(log, Mode.READONLY)
    for change in (
        lambda: log.register("a", TWO),
        lambda: delete_all(log, "a"),
        lambda: delete(log, "a", 1),
        lambda: set_level(log, Level.FULL, "a"),
    ):
        with pytest.raises(NotPermitted):
            change()
    set_mode(log, Mode.READWRITE, "a")
    assert log.register("a", TWO).version == 2
    with pytest.raises(ModeNotConfigured):
        log.registry.own_mode("b")
    log.change(lambda registry: changes.delete_mode(registry, "a"))
    assert log.registry.mode("a") is Mode.READONLY


def test_an_import_keeps_ids_and_versions(log: Log) -> None:
    log.register("other", OTHER)
    with pytest.raises(NotPermitted):
        log.register("a", ONE, id=70, version=4)
    with pytest.raises(NotPermitted):
        set_mode(log, Mode.IMPORT)
    set_mode(log, Mode.IMPORT, "a")
    made = log.register("a", ONE, id=70, version=4)
    assert (made.id, made.version) == (70, 4)
    assert log.register("a", ONE, id=70, version=4) == made
    with pytest.raises(IdTaken):
        log.register("a", TWO, id=70, version=5)
    with pytest.raises(IdTaken):
        log.register("a", ONE, id=71, version=5)
    with pytest.raises(NotPermitted):
        log.register("a", TWO, id=72, version=4)
    with pytest.raises(NotPermitted, match="give the id"):
        log.register("a", TWO)
    set_mode(log, Mode.READWRITE, "a")
    assert log.register("a", TWO).id == 71


def test_a_version_that_is_not_the_next_is_refused(log: Log) -> None:
    log.register("a", ONE, version=1)
    with pytest.raises(InvalidSchema, match="next version of 'a' is 2"):
        log.register("a", TWO, version=5)


def test_a_lookup_finds_what_is_registered(log: Log) -> None:
    made = log.register("a", ONE)
    find = changes.find_registered
    assert find(log.registry, FORMATS, "a", NewSchema(schema=avro(ONE))) == made
    assert find(log.registry, FORMATS, "a", NewSchema(schema=avro(TWO))) is None
    delete_all(log, "a")
    assert find(log.registry, FORMATS, "a", NewSchema(schema=avro(ONE))) is None
    found = find(log.registry, FORMATS, "a", NewSchema(schema=avro(ONE)), deleted=True)
    assert found is not None


def test_records_that_make_no_sense_change_nothing(log: Log) -> None:
    log.register("a", ONE)
    log.write(SchemaRecord(subject="nothing", version=3, value=None))
    log.write(DeleteSubjectRecord(subject="nothing", version=3))
    log.write(DeleteSubjectRecord(subject="a", version=None))
    assert log.registry.subjects() == ["a"]


@pytest.mark.parametrize(
    ("level", "is_permitted"),
    [
        (Level.FORWARD, True),
        (Level.FORWARD_TRANSITIVE, False),
        (Level.FULL, True),
        (Level.FULL_TRANSITIVE, False),
    ],
)
def test_a_forward_level_asks_what_the_old_schemas_read(
    log: Log, level: Level, is_permitted: bool
) -> None:
    # The second reads the third, and the first does not.
    set_level(log, level)
    log.register("a", record("R", x="int"))
    log.register("a", record("R", x=("int", 1)))
    third = record("R")
    if is_permitted:
        assert log.register("a", third).version == 3
    else:
        with pytest.raises(Incompatible, match="version 1"):
            log.register("a", third)
