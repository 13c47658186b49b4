"""Bytes of messages in JSON: as text, as JSON, or in base64; cut to a bound where they are shown. Pure."""

import base64
import binascii
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from zhumq.admin.decoding import DecodedMessage
from zhumq.admin.encoding import MessageEncoder, SchemaChoice
from zhumq.schemas.errors import NotEncoded
from zhumq.schemas.schema import SUBJECT_CHARACTERS_MAX
from zhumq.web.names import INT32_MAX
from zhumq.web.problems import invalid

SHOWN_BYTES_DEFAULT: Final = 64 * 1024  # of one value
SHOWN_BYTES_MAX: Final = 4 * 1024 * 1024

Format = Literal["auto", "text", "json", "base64"]


class GivenSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema of the registry: the latest version of a subject, or one by its number. `message` is the name of one of Protobuf."""

    subject: Annotated[str, Meta(min_length=1, max_length=SUBJECT_CHARACTERS_MAX)]
    version: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    message: Annotated[str, Meta(max_length=1_024)] | None = None


class GivenContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes to send: exactly one of text, JSON, or base64. JSON is sent as it is written here, or, with a schema, as that says."""

    text: str | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    # Text or JSON becomes Avro, Protobuf or checked JSON behind the id of this schema, as serializers write it.
    schema: GivenSchema | UnsetType = UNSET


class Decoded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key or a value is by its schema: its JSON as text, or the reason why there is none."""

    schema_id: int
    subject: str
    version: int
    type: str
    message: str | UnsetType = UNSET  # of Protobuf: which message of the file
    text: str | UnsetType = UNSET
    # Only the beginning of the text is shown.
    is_cut: bool = False
    reason: str | UnsetType = UNSET


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The bytes of a key, a value or a header: as text, JSON or base64."""

    size: int  # in bytes, also of what is not shown
    text: str | UnsetType = UNSET
    json: Any | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    # Only the beginning is shown.
    is_cut: bool = False
    decoded: Decoded | UnsetType = UNSET


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """A header of a message."""

    name: str
    value: Content | None


def read_content(
    given: GivenContent | str | None, name: str, encoder: MessageEncoder | None = None
) -> bytes | None:
    """The bytes that are to be sent. A string is text. Raises RequestRefused, which names the field."""
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    chosen = [each for each in (given.text, given.json, given.base64) if each is not UNSET]
    if len(chosen) != 1:
        raise invalid(f"{name} has exactly one of text, json and base64")
    if isinstance(given.schema, GivenSchema):
        return _encoded(given, given.schema, name, encoder)
    if isinstance(given.json, msgspec.Raw):
        if not _is_json(bytes(given.json)):  # It was not looked into so far.
            raise invalid(f"{name} is not JSON")
        return bytes(given.json)
    if isinstance(given.text, str):
        return given.text.encode()
    assert isinstance(given.base64, str)
    try:
        return base64.b64decode(given.base64, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{name} is not base64") from None


def _encoded(
    given: GivenContent, schema: GivenSchema, name: str, encoder: MessageEncoder | None
) -> bytes:
    if encoder is None or isinstance(given.base64, str):
        raise invalid(f"{name} has a schema, which takes a key or a value of text or json")
    text = given.text if isinstance(given.text, str) else _utf8(given.json, name)
    choice = SchemaChoice(subject=schema.subject, version=schema.version, message=schema.message)
    try:
        return encoder.encode(text, choice)
    except NotEncoded as error:
        raise NotEncoded(f"{name}: {error}") from None


def _utf8(json: Any, name: str) -> str:
    try:
        return bytes(json).decode()
    except UnicodeDecodeError:
        raise invalid(f"{name} is not JSON") from None


def show(content: bytes | None, format_: Format, bytes_max: int) -> Content | None:
    """Bytes in a format; `auto` is text where they are UTF-8. Bytes that do not have the format are base64."""
    if content is None:
        return None
    size, is_cut = len(content), len(content) > bytes_max
    shown = content[:bytes_max] if is_cut else content
    if format_ == "json" and not is_cut and _is_json(shown):
        return Content(size=size, json=msgspec.Raw(shown))
    if format_ != "base64":
        # A cut may be in the middle of a character.
        text = _text(shown, characters_may_be_cut=is_cut)
        if text is not None:
            return Content(size=size, text=text, is_cut=is_cut)
    return Content(size=size, base64=base64.b64encode(shown).decode("ascii"), is_cut=is_cut)


def show_decoded(
    content: Content | None, decoded: DecodedMessage | None, characters_max: int
) -> Content | None:
    """A content that is shown, with what it is by its schema."""
    if content is None or decoded is None:
        return content
    text = decoded.text
    shown = Decoded(
        schema_id=decoded.schema_id,
        subject=decoded.subject,
        version=decoded.version,
        type=decoded.type,
        message=UNSET if decoded.message is None else decoded.message,
        text=UNSET if text is None else text[:characters_max],
        is_cut=text is not None and len(text) > characters_max,
        reason=UNSET if decoded.reason is None else decoded.reason,
    )
    return msgspec.structs.replace(content, decoded=shown)


def show_headers(
    headers: tuple[tuple[str, bytes | None], ...], format_: Format, bytes_max: int
) -> list[Header]:
    return [Header(name=name, value=show(value, format_, bytes_max)) for name, value in headers]


def _text(content: bytes, *, characters_may_be_cut: bool) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if characters_may_be_cut and error.start >= len(content) - 3:
            return content[: error.start].decode()
        return None


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
