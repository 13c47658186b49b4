"""Reads what a pipeline file says about an Iceberg table and its catalog, without Spark and without PyIceberg."""

import re
from typing import Final

from zhumq.pipelines.document import Field, Fields
from zhumq.pipelines.secrets import EXAMPLE, REFERENCE, SECRET_IN_URL

CATALOG_TYPES: Final = ("sql", "rest", "glue", "hive")
_WITH_URI: Final = ("sql", "rest", "hive")
_TABLE: Final = re.compile(r"[^\s.]+(\.[^\s.]+)+")
# Of PyIceberg's options: token, credential, s3.secret-access-key, adls.account-key, header.Authorization, ...
_SECRET_NAME: Final = re.compile(
    r"(?i)(password|passphrase|secret|token|credential|access-key|account-key|api-key|connection-string"
    r"|authorization)$"
)
_EXAMPLE: Final = "{type: sql, uri: 'sqlite:////data/catalog.db', warehouse: 'file:///data/tables'}"


def read_iceberg(fields: Fields, what: Field) -> dict[str, str]:
    """The options of the catalog of a sink with `format: iceberg`. Raises SpecInvalid."""
    if not _TABLE.fullmatch(what.text()):
        what.fail(f"is a namespace and a table, as shop.orders, not {what.text()!r}")
    given = fields.get("options")
    if given is None:
        fields.whole.fail(f"format: iceberg needs the options of its catalog: {_EXAMPLE}")
    within = given.fields()
    options = within.as_texts(keeps_references=True)
    for name, part in within:
        if _SECRET_NAME.search(name) and not REFERENCE.fullmatch(options[name].strip()):
            # Without the value, which may end up in a log.
            part.fail(f"holds a secret: give it by reference, as {EXAMPLE}")
    kind = within.need("type").choice(*CATALOG_TYPES)
    if kind in _WITH_URI:
        uri = within.need("uri")
        if SECRET_IN_URL.search(options["uri"]):
            uri.fail(f"holds a secret: give the whole uri by reference, as {EXAMPLE}")
    if kind == "sql":
        warehouse = within.need("warehouse")
        text = options["warehouse"]
        # Each file of the table is named by its whole path, which a relative one is not for others.
        if not (":/" in text or text.startswith("/") or REFERENCE.fullmatch(text)):
            warehouse.fail(
                f"is the whole path of a folder, as file:///data/tables, not {text!r}: other"
                " engines find the files of the tables by it"
            )
    return options
