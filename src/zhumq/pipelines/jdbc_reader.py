"""Reads what a pipeline file says about databases: how they are reached, and the keys of a sink."""

import re
from typing import Final

from zhumq.pipelines.document import Field, Fields
from zhumq.pipelines.jdbc_spec import JdbcTarget
from zhumq.pipelines.jdbc_statements import (
    ATTEMPT,
    TASK,
    Database,
    database_of,
    is_table_name,
)
from zhumq.pipelines.secrets import EXAMPLE, REFERENCE, SECRET_IN_URL

KEYS_MAX: Final = 20
_SECRET_NAME: Final = re.compile(r"(?i)(password|passwd|pwd|passphrase|secret|token)$")


def read_database(fields: Fields) -> dict[str, str]:
    """The options of a database, with secrets by reference. Raises SpecInvalid."""
    given = fields.get("options")
    if given is None:
        fields.whole.fail("format: jdbc needs options: {url: 'jdbc:postgresql://HOST/DATABASE'}")
    within = given.fields()
    options = within.as_texts(keeps_references=True)
    for name, part in within:
        if _SECRET_NAME.search(name) and not REFERENCE.fullmatch(options[name].strip()):
            # Without the value, which may end up in a log.
            part.fail(f"holds a secret: give it by reference, as {EXAMPLE}")
        if name.lower() in ("dbtable", "query"):
            part.fail("is not an option here: the pipeline's file names the table itself")
    url = within.need("url")
    if not options["url"].startswith("jdbc:"):
        url.fail("begins with jdbc:, as jdbc:postgresql://HOST/DATABASE")
    if SECRET_IN_URL.search(options["url"]):
        url.fail(f"holds a secret: give it as an option of its own: password: {EXAMPLE}")
    return options


def read_target(fields: Fields, what: Field) -> JdbcTarget | None:
    """The target of a sink with `format: jdbc`; None in a database whose rows may repeat. Raises SpecInvalid."""
    options = read_database(fields)
    columns, keys = fields.get("partition_by"), fields.get("keys")
    if columns is not None:
        columns.fail("is not for format: jdbc")
    database = database_of(options["url"])
    if database is None:
        if keys is not None:
            known = ", ".join(f"jdbc:{each}" for each in Database)
            keys.fail(f"is for databases whose upsert is known: {known}")
        return None
    if not is_table_name(what.text()):
        what.fail(f'is a table such as orders, shop.orders or "Orders", not {what.text()!r}')
    isolation = fields.need("options").fields().get("isolationLevel")
    if isolation is not None and isolation.text().upper() == "NONE":
        isolation.fail("NONE is without transactions, which put each batch in once")
    sequence = fields.get("sequence_by")
    names = _keys(keys) if keys is not None else ()
    if keys is not None and sequence is None:
        keys.fail(
            "needs the field 'sequence_by': the column that says which of two rows of a key is newer"
        )
    if sequence is not None and keys is None:
        sequence.fail("is for a sink with keys")
    if sequence is not None and sequence.text() in names:
        sequence.fail(f"names the column {sequence.text()!r}, which is a key")
    return JdbcTarget(
        database=database,
        table=what.text(),
        options=options,
        keys=names,
        keys_mark=(keys or what).mark,
        sequence=sequence.text() if sequence else None,
        sequence_mark=(sequence or what).mark,
    )


def refuse_keys(fields: Fields, kind: str) -> None:
    """Fail for the fields of a database in a sink of another format."""
    for name in ("keys", "sequence_by"):
        given = fields.get(name)
        if given is not None:
            given.fail(
                f"is for format: jdbc, not for {kind}; a `merge` writes a Delta table by key"
            )


def _keys(field: Field) -> tuple[str, ...]:
    names = field.texts()
    if not names:
        field.fail("names no column")
    if len(names) > KEYS_MAX:
        field.fail(f"names more than {KEYS_MAX} columns")
    for each in names:
        if names.count(each) > 1:
            field.fail(f"names the column {each!r} twice")
        if each in (TASK, ATTEMPT):
            field.fail(f"names the column {each!r}, which the staging table has")
    return names
