"""Compiles a schema and a version to flat encode and decode functions, at first use."""

from collections.abc import Callable
from typing import Any, TypeVar

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.decode_source import DecodeSource
from zhumq.protocol.encode_source import EncodeSource
from zhumq.protocol.primitives import BAD_BYTES
from zhumq.protocol.schema import Message, is_flexible

M = TypeVar("M", bound=Message)

Decode = Callable[[bytes, int], tuple[Any, int]]
Encode = Callable[[Any, list[Any]], None]

_decoders: dict[tuple[type[Message], int], Decode] = {}
_encoders: dict[tuple[type[Message], int], Encode] = {}


def decoder(message: type[Message], version: int) -> Decode:
    """`decode(buffer, position) -> (message, position)`. May raise any of BAD_BYTES and MalformedFrame."""
    found = _decoders.get((message, version))
    if found is None:
        found = _decoders[message, version] = compile_decoder(message, version)
    return found


def encoder(message: type[Message], version: int) -> Encode:
    """`encode(message, parts)`: appends bytes, and the objects of records fields unchanged."""
    found = _encoders.get((message, version))
    if found is None:
        found = _encoders[message, version] = compile_encoder(message, version)
    return found


def use_encoder(message: type[Message], version: int, encode: Encode) -> None:
    """Replaces the generated function by a hand-tuned one."""
    _encoders[message, version] = encode


def compile_decoder(message: type[Message], version: int) -> Decode:
    source = DecodeSource(version, flexible=is_flexible(message, version))
    source.struct(message, "o")
    source.flush()
    source.emit("return o, p")
    function: Decode = source.function("decode(b, p)")
    return function


def compile_encoder(message: type[Message], version: int) -> Encode:
    source = EncodeSource(version, flexible=is_flexible(message, version))
    source.struct(message, "o")
    source.flush()
    source.emit("return")
    function: Encode = source.function("encode(o, out)")
    return function


def decode_message(message: type[M], version: int, buffer: bytes, position: int) -> M:
    """Decodes a message that has to end at the end of the buffer."""
    try:
        decoded, end = decoder(message, version)(buffer, position)
    except BAD_BYTES as error:
        raise MalformedFrame(f"{message.__name__} version {version}: {error}") from error
    if end != len(buffer):
        raise MalformedFrame(
            f"{message.__name__} version {version}: {len(buffer) - end} bytes after its end"
        )
    whole: M = decoded
    return whole
