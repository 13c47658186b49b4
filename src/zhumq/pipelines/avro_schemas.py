"""Finds the schemas of Avro messages: in a file, or in the schema registry with all versions of a subject."""

from collections.abc import Sequence
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.schemas import RegisteredSchema, show_schema, show_versions
from zhumq.pipelines.avro_messages import AvroDecoder, avro_columns
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.spec import AvroSource
from zhumq.schemas.errors import InvalidSchema, SchemaError

VERSIONS_MAX: Final = 100  # of a subject: the newest ones are known


def avro_decoder(source: AvroSource, brokers: Brokers | None) -> AvroDecoder:
    """The decoder of a step. Raises SpecInvalid with the line of a schema that cannot be used.

    Without brokers, as in tests of a pipeline, there is no registry.
    """
    if source.text is not None:
        return AvroDecoder(reader=source.text, writers=None)
    assert source.subject is not None
    if brokers is None:
        raise source.mark.wrong("needs the schema registry of a broker; tests run without one")
    try:
        with ClusterConnection(brokers.bootstrap, security=brokers.security()) as connection:
            found = show_versions(connection, source.subject)
            reader = (
                found[-1]
                if source.version is None
                else show_schema(connection, source.subject, source.version)
            )
        return decoder_of(reader, found)
    except SchemaError as error:
        raise source.mark.wrong(str(error)) from None


def decoder_of(reader: RegisteredSchema, versions: Sequence[RegisteredSchema]) -> AvroDecoder:
    """The decoder of messages that were written with these versions of a subject. Raises InvalidSchema."""
    known = versions[-VERSIONS_MAX:]
    for each in (reader, *known):
        if each.type != "AVRO":
            raise InvalidSchema(f"{each.subject!r} is {each.type}, not AVRO")
        if each.references:
            raise InvalidSchema(f"{each.subject!r} refers to other schemas: not supported")
    avro_columns(reader.schema)
    return AvroDecoder(reader=reader.schema, writers={each.id: each.schema for each in known})
