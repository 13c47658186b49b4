"""Reads the merge sinks of a pipeline file: every field, and what they exclude."""

from typing import Final

from zhumq.pipelines.document import Field, Fields, Mark
from zhumq.pipelines.schedule_reader import read_upkeep
from zhumq.pipelines.spec import ChangeFormat, MergeSink
from zhumq.pipelines.step_reader import check_sql

KEYS_MAX: Final = 20
OWN_COLUMNS: Final = ("_sequence", "_deleted", "_valid_from", "_valid_to")
DEBEZIUM_SEQUENCE: Final = "ts_ms"


def read_merge(name: str, fields: Fields, what: Field, source: str) -> MergeSink:
    """The merge sink of these fields. Raises SpecInvalid."""
    fields.only(
        "merge", "from", "changes", "keys", "sequence_by", "apply_as_deletes", "except_columns",
        "scd_type", "partition_by", "upkeep",
    )  # fmt: skip
    changes, scd_type = fields.get("changes"), fields.get("scd_type")
    kind = ChangeFormat(changes.choice(*ChangeFormat)) if changes else ChangeFormat.ROWS
    keys, left_out = fields.need("keys"), fields.get("except_columns")
    columns = fields.get("partition_by")
    key_names = _columns(keys)
    left_out_names = _columns(left_out) if left_out else ()
    partition_by = _columns(columns) if columns else ()
    if len(key_names) > KEYS_MAX:
        keys.fail(f"names more than {KEYS_MAX} columns")
    for each in left_out_names:
        if left_out is not None and each in key_names:
            left_out.fail(f"names the column {each!r}, which is a key")
        if columns is not None and each in partition_by:
            columns.fail(f"names the column {each!r}, which except_columns leaves out")
    return MergeSink(
        name=name,
        mark=what.mark,
        input=source,
        path=_path(what),
        changes=kind,
        keys=key_names,
        keys_mark=keys.mark,
        sequence=_sequence(fields, kind, what),
        deletes=_deletes(fields, kind),
        except_columns=left_out_names,
        except_mark=(left_out or what).mark,
        scd_type=int(scd_type.choice("1", "2")) if scd_type else 1,
        partition_by=partition_by,
        partition_mark=(columns or what).mark,
        upkeep=read_upkeep(fields.get("upkeep"), what.text(), partition_by),
    )


def _path(field: Field) -> str:
    text = field.text()
    if not text.strip():
        field.fail("must name the folder of the table")
    return text


def _sequence(fields: Fields, kind: ChangeFormat, what: Field) -> tuple[str, Mark]:
    field = fields.get("sequence_by")
    if field is not None:
        return check_sql(field), field.mark
    if kind is ChangeFormat.DEBEZIUM:
        return DEBEZIUM_SEQUENCE, what.mark
    raise what.mark.wrong("needs the field 'sequence_by': which of two changes of a key is newer")


def _deletes(fields: Fields, kind: ChangeFormat) -> tuple[str, Mark] | None:
    field = fields.get("apply_as_deletes")
    if field is None:
        return None
    if kind is ChangeFormat.DEBEZIUM:
        field.fail("is not for changes: debezium, whose operation d is a delete")
    return check_sql(field), field.mark


def _columns(field: Field) -> tuple[str, ...]:
    names = field.texts()
    if not names:
        field.fail("names no column")
    for each in names:
        if names.count(each) > 1:
            field.fail(f"names the column {each!r} twice")
        if each in OWN_COLUMNS:
            field.fail(f"names the column {each!r}, which the merge itself writes")
    return names
