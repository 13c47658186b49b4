"""A client on kio's codec: requests from plain values in any version, and answers as short texts for comparing."""

import dataclasses
import datetime as dt
import enum
import importlib
import io
import re
import socket
import struct
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

SECONDS_MAX = 30.0
# What differs from one server, or one run, to the next.
HIDDEN = frozenset(
    {
        "throttle_time", "error_message", "log_append_time", "log_start_offset", "record_errors", "current_leader", "node_endpoints", "host",
        "port", "node_id", "leader_epoch", "committed_leader_epoch", "last_timestamp", "transaction_start_time", "diverging_epoch", "snapshot_id",
        "session_id", "preferred_read_replica", "timestamp", "records",
    }
)  # fmt: skip
# Fields whose value speaks for itself.
BARE = frozenset(
    {
        "index", "partition_index", "name", "topic", "key", "transactional_id", "group_id", "partition_error_code", "error_code",
        "transaction_state", "producer_id",
    }
)  # fmt: skip


@cache
def message_class(api: str, version: int, kind: str) -> type:
    """kio's class: `message_class("EndTxn", 5, "request")`."""
    package = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api).lower()
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind}")
    return getattr(module, f"{api}{kind.title()}")


def build(cls: type, values: Mapping[str, Any]) -> Any:
    """A message from plain values, nested ones as mappings. Fields that this version does not have are left out."""
    hints = typing.get_type_hints(cls)
    given = {}
    for field in dataclasses.fields(cls):
        name = field.name if field.name in values else f"{field.name}_ms"
        if name in values:
            given[field.name] = _converted(hints[field.name], values[name])
        elif field.default is dataclasses.MISSING:
            given[field.name] = _empty(hints[field.name])
    return cls(**given)


def _converted(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    options = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return _converted(next(each for each in options if each is not types.NoneType), value)
    if typing.get_origin(hint) is tuple:
        return tuple(_converted(options[0], each) for each in value)
    if dataclasses.is_dataclass(hint):
        return build(hint, value)
    if isinstance(hint, type) and issubclass(hint, dt.timedelta):
        return dt.timedelta(milliseconds=value)
    return value


def _empty(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    for kind, empty in ((bool, False), (int, 0), (str, ""), (dt.timedelta, dt.timedelta())):
        if isinstance(hint, type) and issubclass(hint, kind):
            return empty
    raise TypeError(f"no empty value for {hint}")


def shown(value: Any, symbols: Mapping[Any, str], name: str = "") -> str:
    """A short text. `symbols` has the words for producer ids, and what to cut from names."""
    if isinstance(value, ErrorCode):
        return value.name.upper()
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value):
        fields = [
            (each.name, getattr(value, each.name))
            for each in dataclasses.fields(value)
            if each.name not in HIDDEN
        ]
        texts = [
            (field, shown(inner, symbols, field))
            for field, inner in fields
            if not (isinstance(inner, tuple) and not inner)
        ]
        return " ".join(
            text
            if field in BARE or isinstance(getattr(value, field), tuple | ErrorCode)
            else f"{field}={text}"
            for field, text in texts
        )
    if isinstance(value, tuple):
        # Kafka answers in no order.
        texts = sorted(shown(each, symbols, name) for each in value)
        return f"[{', '.join(texts)}]"
    if name == "producer_id":
        return symbols.get(value, "no producer" if value == -1 else "another producer")
    if isinstance(value, str):
        return symbols.get(value, value)
    if isinstance(value, dt.timedelta):
        return f"{value // dt.timedelta(milliseconds=1)} ms"
    return str(value)


def codes_in(value: Any) -> set[str]:
    """All error codes of an answer, of its topics and partitions too."""
    if isinstance(value, ErrorCode):
        return {value.name.upper()}
    if isinstance(value, tuple):
        return set().union(*(codes_in(each) for each in value))
    if dataclasses.is_dataclass(value):
        return set().union(
            *(codes_in(getattr(value, each.name)) for each in dataclasses.fields(value))
        )
    return set()


class KioClient:
    """One connection; it is opened again after the server has closed it."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, api: str, version: int, values: Mapping[str, Any]) -> Any:
        """Send a request and return the answer. Raises ConnectionError if the server closes the connection instead."""
        request = build(message_class(api, version, "request"), values)
        self._correlation_id += 1
        header = build(
            request.__header_schema__,
            {
                "request_api_key": request.__api_key__,
                "request_api_version": version,
                "correlation_id": self._correlation_id,
                "client_id": "comparison",
            },
        )
        buffer = io.BytesIO()
        entity_writer(type(header))(buffer, header)
        entity_writer(type(request))(buffer, request)
        frame = buffer.getvalue()
        try:
            data = self._exchange(struct.pack(">i", len(frame)) + frame)
        except OSError:
            self.close()
            raise
        if api == "DescribeTransactions":
            # kio refuses the start time -1 of a transaction that has not begun.
            data = data.replace(b"\xff" * 8, bytes(8))
        answer_class = message_class(api, version, "response")
        answer_header, size = entity_reader(answer_class.__header_schema__)(data, 0)
        assert answer_header.correlation_id == self._correlation_id
        answer, used = entity_reader(answer_class)(data, size)
        if size + used != len(data):
            raise ValueError(f"{len(data) - size - used} bytes behind the {api} answer v{version}")
        return answer

    def _exchange(self, frame: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=SECONDS_MAX)
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the server closed the connection")
            data += part
        return data
