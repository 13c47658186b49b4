"""The refunds of `zhumq demo`: messages with a schema of the registry, which has two versions."""

import contextlib
import itertools
import json
import random
from collections.abc import Iterator
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.encoding import MessageEncoder, SchemaChoice, open_encoder
from zhumq.admin.errors import Refused
from zhumq.admin.schemas import missing_packages, register_schema
from zhumq.schemas.errors import SchemaError

TOPIC: Final = "refunds"
SETTINGS: Final = {"schema.validation": "value"}  # The brokers take no other messages.
_CHOICE: Final = SchemaChoice(subject=f"{TOPIC}-value")
_REASONS: Final = ("damaged", "late", "wrong item", "changed their mind")


def can_refund() -> bool:
    """Whether the packages of zhumq[registry] are here."""
    return not missing_packages()


@contextlib.contextmanager
def open_refunds(bootstrap: str) -> Iterator[Iterator[tuple[str, bytes]]]:
    """Refunds without end: customers, and Avro behind the id of its schema, as Confluent's serializers write it."""
    connection = ClusterConnection(bootstrap)
    try:
        for each in (_schema(), _schema(has_reason=True)):
            register_schema(connection, _CHOICE.subject, each)
        with open_encoder(connection) as encoder:
            yield _refunds(encoder)
    except SchemaError as error:  # The subject was deleted, or has other versions by now.
        raise Refused(str(error)) from error
    finally:
        connection.close()


def _refunds(encoder: MessageEncoder) -> Iterator[tuple[str, bytes]]:
    draw = random.Random()  # noqa: S311  a sample, not a secret
    for number in itertools.count(1):
        customer = f"customer-{draw.randint(1, 200)}"
        refund = {
            "refund": number,
            "customer": customer,
            "cents": draw.randint(500, 50_000),
            "reason": draw.choice(_REASONS),
        }
        yield customer, encoder.encode(json.dumps(refund), _CHOICE)


def _schema(*, has_reason: bool = False) -> str:
    fields: list[dict[str, object]] = [
        {"name": "refund", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "cents", "type": "long"},
    ]
    if has_reason:  # With a default, so that the second version reads what the first has written.
        fields.append({"name": "reason", "type": ["null", "string"], "default": None})
    return json.dumps({"type": "record", "name": "Refund", "namespace": "shop", "fields": fields})
