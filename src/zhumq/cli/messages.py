"""Converts messages to and from JSON lines: `produce` reads what `consume` prints."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zhumq.cli.options import INT32_MAX, INT64_MAX, CommandFailed

# Fields that `consume` writes and `produce` ignores.
IGNORED_FIELDS = frozenset({"topic", "offset"})
FIELDS = frozenset({"key", "value", "headers", "partition", "timestamp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message to send; None leaves the choice to the producer."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def parse_line(line: bytes, key_separator: bytes | None, number: int) -> OutgoingMessage:
    """Parse a line of text: the value, or key and value with a separator between them."""
    if key_separator is None:
        return OutgoingMessage(value=line)
    key, separator, value = line.partition(key_separator)
    if not separator:
        raise CommandFailed(
            f"line {number} has no key separator {key_separator.decode(errors='replace')!r}"
        )
    return OutgoingMessage(key=key, value=value)


def parse_json_line(line: bytes, number: int) -> OutgoingMessage:
    """Parse a line such as {"key": "a", "value": "b", "headers": {"h": "1"}, "partition": 0}."""
    try:
        document = json.loads(line)
    except ValueError as error:
        raise CommandFailed(f"line {number} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CommandFailed(f'line {number} must be an object such as {{"value": "text"}}')
    unknown = sorted(set(document) - FIELDS - IGNORED_FIELDS)
    if unknown:
        known = ", ".join(sorted(FIELDS))
        raise CommandFailed(f"line {number} has the unknown field {unknown[0]!r}: use {known}")
    return OutgoingMessage(
        value=_decode_bytes(document.get("value"), f"line {number}: value"),
        key=_decode_bytes(document.get("key"), f"line {number}: key"),
        headers=_decode_headers(document.get("headers"), f"line {number}: headers"),
        partition=_decode_count(document.get("partition"), f"line {number}: partition", INT32_MAX),
        timestamp_ms=_decode_count(
            document.get("timestamp"), f"line {number}: timestamp", INT64_MAX
        ),
    )


def format_line(value: bytes | None, key: bytes | None, key_separator: bytes | None) -> bytes:
    """One message as a line of text: what `parse_line` parses."""
    line = (value or b"") + b"\n"
    return line if key_separator is None else (key or b"") + key_separator + line


def format_json_line(
    *,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    """One message as a line of JSON; bytes that are not UTF-8 become {"base64": "..."}."""
    document = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms,
        "key": text_or_base64(key),
        "value": text_or_base64(value),
        "headers": [[name, text_or_base64(content)] for name, content in headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def text_or_base64(content: bytes | None) -> str | dict[str, str] | None:
    """Bytes for JSON: text if they are UTF-8, else {"base64": "..."}."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


def _decode_bytes(content: Any, place: str) -> bytes | None:
    match content:
        case None:
            return None
        case str():
            try:
                return content.encode()
            except UnicodeEncodeError as error:
                raise CommandFailed(f"{place} is not text: {error.reason}") from error
        case {"base64": str(encoded)} if len(content) == 1:
            try:
                return base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError) as error:
                raise CommandFailed(f"{place} is not base64: {error}") from error
        case _:
            raise CommandFailed(f'{place} must be a string, null or {{"base64": "..."}}')


def _decode_headers(content: Any, place: str) -> tuple[tuple[str, bytes | None], ...]:
    match content:
        case None:
            return ()
        case dict():
            pairs = list(content.items())
        case list() if all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            pairs = [(pair[0], pair[1]) for pair in content]
        case _:
            raise CommandFailed(f"{place} must be an object, or a list of [name, value] pairs")
    decoded = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise CommandFailed(f"{place}: a name must be a string")
        decoded.append((name, _decode_bytes(value, f"{place}: {name}")))
    return tuple(decoded)


def _decode_count(content: Any, place: str, highest: int) -> int | None:
    if content is None:
        return None
    if isinstance(content, bool) or not isinstance(content, int) or not 0 <= content <= highest:
        raise CommandFailed(f"{place} must be a whole number from 0 to {highest}")
    return content
