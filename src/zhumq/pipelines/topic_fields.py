"""Reads the names of topics and the options of a topic sink in a pipeline file, as a broker would take them."""

from collections.abc import Collection, Mapping
from typing import Final

from zhumq.metadata.topics import check_topic_name
from zhumq.model.errors import InvalidTopic
from zhumq.model.ids import INTERNAL_TOPICS
from zhumq.pipelines.document import Field, Fields
from zhumq.pipelines.secrets import security_texts
from zhumq.spark.options import (
    SINK_DECISIONS_TOPIC,
    SINK_LEDGER_TOPIC,
    OptionInvalid,
    write_options,
)

# Those that clients write only through requests of their own, and those with the state of sinks.
_NOT_FOR_ROWS: Final = (*INTERNAL_TOPICS, SINK_LEDGER_TOPIC, SINK_DECISIONS_TOPIC)
# What a sink says with fields of its own, or Spark and the run say.
_OPTIONS_OF_SINKS: Final = {
    "topic": "the field topic",
    "includetimestamp": "keep: [timestamp]",
    "txnappid": "nothing: the run names its batches",
    "txnversion": "nothing: the run numbers its batches",
}


def topic_name(field: Field) -> str:
    """A name that a topic can have. Raises SpecInvalid."""
    name = field.text()
    try:
        check_topic_name(name)
    except InvalidTopic as error:
        field.fail(str(error))
    return name


def target_topic(field: Field) -> str:
    """A topic that rows may be written to. Raises SpecInvalid."""
    name = topic_name(field)
    if name in _NOT_FOR_ROWS:
        field.fail(f"{name} is a topic of the brokers' own: write to another one")
    return name


def topic_names(field: Field) -> tuple[str, ...]:
    """The names of topics that are read, each once. Raises SpecInvalid."""
    # Spark's connector takes a list with commas in one text, and so does the field `topic`.
    for each in field.items():
        for name in each.text().split(","):
            if name.strip():
                _check_part(each, name.strip())
    return field.texts()


def sink_options(field: Field | None) -> dict[str, str]:
    """The options of a topic sink. Raises SpecInvalid."""
    if field is None:
        return {}
    options = security_texts(field)
    for name, part in field.fields():
        own = _OPTIONS_OF_SINKS.get(name.lower())
        if own is not None:
            part.fail(f"is not an option here: give {own}")
        if name.startswith("kafka."):
            continue  # The settings of security may refer to what only the run's machine has.
        try:
            write_options({name: options[name]})
        except OptionInvalid as error:
            part.fail(str(error))
    return options


def refuse_both(fields: Fields, options: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Fail for an option that repeats a field, given as the name of the field and that of the option."""
    given = {name.lower(): name for name in options}
    for field_name, option in own.items():
        field = fields.get(field_name)
        if field is not None and option.lower() in given:
            fields.need("options").fields().need(given[option.lower()]).fail(
                f"is what the field {field_name!r} says: give one of them"
            )


def refuse_endless_dead_letters(field: Field, topic: str, read: Collection[str]) -> None:
    """Fail if a stream would read its own dead letters, which are bad rows for ever."""
    if topic in read:
        field.fail(
            f"the stream reads {topic} itself, so each bad row would come back: name another"
        )


def _check_part(field: Field, name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopic as error:
        field.fail(str(error))
