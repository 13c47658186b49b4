"""What the broker reads in a certificate: its subject as Java prints it (RFC 2253), and its validity. Pure."""

import calendar
from dataclasses import dataclass
from typing import Final

_INTEGER: Final = 0x02
_OBJECT_ID: Final = 0x06
_UTF8_STRING: Final = 0x0C
_BMP_STRING: Final = 0x1E
_UNIVERSAL_STRING: Final = 0x1C
_PRINTABLE_STRING: Final = 0x13
_T61_STRING: Final = 0x14
_IA5_STRING: Final = 0x16
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_GENERAL_STRING: Final = 0x1B
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_VERSION: Final = 0xA0
_TEXTS: Final = {
    _UTF8_STRING: "utf-8",
    _PRINTABLE_STRING: "ascii",
    _T61_STRING: "latin-1",
    _IA5_STRING: "ascii",
    _GENERAL_STRING: "latin-1",
    _BMP_STRING: "utf-16-be",
    _UNIVERSAL_STRING: "utf-32-be",
}
# RFC 2253, section 2.3: the only types with a keyword. Java prints any other as its number.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_LONG_FORM: Final = 0x80
_LENGTH_BYTES_MAX: Final = 4
_CENTURY: Final = 100
_UTC_TIME_PIVOT: Final = 50  # RFC 5280: a UTCTime of 50 to 99 is in the 20th century
_TIME_DIGITS: Final = 10  # month, day, hour, minute, second


class CertificateUnreadable(ValueError):
    """The bytes are not a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The parts of a certificate that the broker decides by."""

    subject: str
    # Seconds since 1970.
    not_before: int
    not_after: int


def read_certificate(der: bytes) -> Certificate:
    """Read a certificate in DER. Raises CertificateUnreadable."""
    try:
        return _read_certificate(der)
    except (IndexError, ValueError) as reason:
        raise CertificateUnreadable(f"not a certificate: {reason}") from None


def _read_certificate(der: bytes) -> Certificate:
    signed = _Reader(_Reader(der).take(_SEQUENCE)).take(_SEQUENCE)
    fields = _Reader(signed)
    if fields.next_tag == _VERSION:
        fields.take(_VERSION)
    fields.take(_INTEGER)  # the serial number
    fields.take(_SEQUENCE)  # the algorithm of the signature
    fields.take(_SEQUENCE)  # the issuer
    validity = _Reader(fields.take(_SEQUENCE))
    not_before, not_after = _seconds(*validity.take_any()), _seconds(*validity.take_any())
    return Certificate(
        subject=_name(fields.take(_SEQUENCE)), not_before=not_before, not_after=not_after
    )


class _Reader:
    """Reads the elements of a DER sequence one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position >= len(self._data)

    @property
    def next_tag(self) -> int:
        return self._data[self._position]

    def take(self, tag: int) -> bytes:
        found, content = self.take_any()
        if found != tag:
            raise ValueError(f"an element of type {found:#x} where {tag:#x} belongs")
        return content

    def take_any(self) -> tuple[int, bytes]:
        data, start = self._data, self._position
        tag, length = data[start], data[start + 1]
        start += 2
        if length & _LONG_FORM:
            count = length & ~_LONG_FORM
            if not 0 < count <= _LENGTH_BYTES_MAX:
                raise ValueError(f"a length of {count} bytes")
            length = int.from_bytes(data[start : start + count], "big")
            start += count
        if start + length > len(data):
            raise ValueError("it ends too early")
        self._position = start + length
        return tag, data[start : start + length]

    def take_with_header(self) -> bytes:
        """The next element with its tag and length."""
        start = self._position
        self.take_any()
        return self._data[start : self._position]


def _seconds(tag: int, content: bytes) -> int:
    digits = content.decode("ascii").removesuffix("Z")
    if tag == _UTC_TIME:
        short = int(digits[:2])
        year = short + (19 if short >= _UTC_TIME_PIVOT else 20) * _CENTURY
    elif tag == _GENERALIZED_TIME:
        year = int(digits[:4])
    else:
        raise ValueError(f"a time of type {tag:#x}")
    rest = digits[-_TIME_DIGITS:]
    parts = [int(rest[index : index + 2]) for index in range(0, _TIME_DIGITS, 2)]
    return calendar.timegm((year, *parts))


def _name(content: bytes) -> str:
    """RFC 2253, section 2.1: the last relative name comes first."""
    names = _Reader(content)
    relative_names: list[str] = []
    while not names.is_at_end:
        attributes = _Reader(names.take(_SET))
        parts: list[str] = []
        while not attributes.is_at_end:
            parts.append(_attribute(_Reader(attributes.take(_SEQUENCE))))
        relative_names.append("+".join(parts))
    return ",".join(reversed(relative_names))


def _attribute(attribute: _Reader) -> str:
    object_id = _object_id(attribute.take(_OBJECT_ID))
    tag = attribute.next_tag
    whole = attribute.take_with_header()
    keyword = _KEYWORDS.get(object_id)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or object_id}=#{whole.hex()}"
    _, content = _Reader(whole).take_any()
    return f"{keyword}={_escaped(content.decode(_TEXTS[tag], errors='replace'))}"


def _object_id(content: bytes) -> str:
    numbers = [0]
    for byte in content:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if not byte & _LONG_FORM:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(str(each) for each in (first, numbers[0] - 40 * first, *numbers[1:-1]))


def _escaped(text: str) -> str:
    """RFC 2253, section 2.4. Java escapes `=` and every `#` as well, and a null as in RFC 4514."""
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r")) if inner else len(text)
    escaped = "".join(
        f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in inner
    )
    before, after = text[:lead], text[lead + len(inner) :]
    return (
        "".join(f"\\{each}" for each in before) + escaped + "".join(f"\\{each}" for each in after)
    )
