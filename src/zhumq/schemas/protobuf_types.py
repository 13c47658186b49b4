"""The message types of a Protobuf schema; their messages are read from bytes, within a bound of memory."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from zhumq.schemas.errors import InvalidSchema, NotDecoded
from zhumq.schemas.protobuf_well_known import well_known

MEMORY_MAX: Final = 100_000_000  # bytes that the messages within a message take
# An empty message is two bytes, and takes room for all of its fields.
_FIELD_BYTES: Final = 16
_MESSAGE_BYTES: Final = 64
_SMALLEST_BYTES: Final = 2
_DEPTH_MAX: Final = 100  # deeper messages are refused by the library
_INDEXES_MAX: Final = 100
_VARINT_BYTES_MAX: Final = 10


class MemoryBudget:
    """What the messages of one decoding may take. It is never given back."""

    def __init__(self) -> None:
        self.left = MEMORY_MAX

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise NotDecoded("it is too large to be decoded")


class MessageTypes:
    """The types of a .proto file and of those that it imports."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        """`files` are each after those that they import. Raises InvalidSchema."""
        self._file = files[-1]
        self._pool = DescriptorPool()
        self._fields_max = 0  # of a type
        self._well_known: dict[str, str | None] = {}
        for file in files:
            for _, each in _messages(file.message_type, ""):
                self._fields_max = max(self._fields_max, len(each.field))
                if each.options.message_set_wire_format:
                    raise InvalidSchema("message sets are not decoded")
            try:
                self._pool.AddSerializedFile(file.SerializeToString())
            except TypeError as error:
                reason = str(error).splitlines()[0][:200]
                raise InvalidSchema(f"the Protobuf schema cannot be used: {reason}") from None

    def names(self) -> list[str]:
        """The full names of the messages of the file itself, each before those that are declared in it."""
        return [name for name, _ in _messages(self._file.message_type, self._file.package)]

    @property
    def pool(self) -> DescriptorPool:
        return self._pool

    def indexes(self, name: str | None) -> tuple[int, ...] | None:
        """The place of a message in the file, as `at` takes it; of its first one without a name. None: there is none."""
        if name is None:
            return (0,) if self._file.message_type else None
        package = f"{self._file.package}." if self._file.package else ""
        declared: Sequence[DescriptorProto] = self._file.message_type
        found = []
        # The name may be without the package.
        for part in name.removeprefix(package).split("."):
            index = next((i for i, each in enumerate(declared) if each.name == part), None)
            if index is None:
                return None
            found.append(index)
            declared = [each for each in declared[index].nested_type if not each.options.map_entry]
        return tuple(found)

    def outermost(self) -> list[str]:
        """The messages of the file that no other of its messages has as a field; all, if each is one of another."""
        top = self._file.message_type
        prefix = f"{self._file.package}." if self._file.package else ""
        names = {prefix + each.name: _used(each) for each in top}
        found = [
            name
            for name in names
            if not any(name in used for other, used in names.items() if other != name)
        ]
        return found or list(names)

    def named(self, name: str) -> Descriptor | None:
        """A type of the file, or of those that it imports."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            return None

    def well_known(self, type_: Descriptor) -> str | None:
        """The name of a type that has a JSON of its own."""
        name = type_.full_name
        if name not in self._well_known:
            self._well_known[name] = well_known(type_)
        return self._well_known[name]

    def at(self, indexes: Sequence[int]) -> Descriptor:
        """The type at a place of the file: which of its messages, which of those declared in it, and so on.

        The types that stand for maps are not counted: the text of a schema has none. Raises NotDecoded.
        """
        declared: Sequence[DescriptorProto] = self._file.message_type
        name = self._file.package
        for index in indexes:
            if not 0 <= index < len(declared):
                raise NotDecoded(f"the schema has no message at {list(indexes)}")
            name = f"{name}.{declared[index].name}" if name else declared[index].name
            declared = [each for each in declared[index].nested_type if not each.options.map_entry]
        found = self.named(name)
        assert found is not None
        return found

    def read(self, type_: Descriptor, data: bytes, budget: MemoryBudget) -> Message:
        """The message that bytes are. Raises NotDecoded."""
        largest = _MESSAGE_BYTES + _FIELD_BYTES * self._fields_max
        # Mostly so little that it need not be counted.
        if len(data) // _SMALLEST_BYTES * largest > budget.left:
            self._count(type_, data, budget)
        try:
            return GetMessageClass(type_).FromString(data)
        except (DecodeError, UnicodeDecodeError):
            raise NotDecoded(f"it is no {type_.full_name}") from None

    def _count(self, type_: Descriptor, data: bytes, budget: MemoryBudget) -> None:
        """Spend what the messages within a message take. What is malformed is found by who reads it."""
        around = [self._inner(type_, data, 0, len(data))]
        while around:
            found = next(around[-1], None)
            if found is None:
                around.pop()
                continue
            inner, begin, end = found
            budget.spend(_MESSAGE_BYTES + _FIELD_BYTES * len(inner.fields))
            if begin < end and len(around) <= _DEPTH_MAX:
                around.append(self._inner(inner, data, begin, end))

    def _inner(
        self, type_: Descriptor, data: bytes, at: int, end: int
    ) -> Iterator[tuple[Descriptor, int, int]]:
        """The messages among the fields of a message, with their places. The fields of a group are read on the way."""
        here: Descriptor | None = type_
        around: list[Descriptor | None] = []
        while at < end:
            tag, at = _varint(data, at)
            match tag & 7:
                case 0:
                    _, at = _varint(data, at)
                case 1:
                    at += 8
                case 2:
                    length, at = _varint(data, at)
                    inner = self._message_field(here, tag >> 3)
                    if inner is not None:
                        yield inner, at, min(at + length, end)
                    at += length
                case 3:
                    around.append(here)
                    here = self._message_field(here, tag >> 3)
                    if here is not None:
                        yield here, at, at
                case 4 if around:
                    here = around.pop()
                case 5:
                    at += 4
                case _:
                    return

    def _message_field(self, type_: Descriptor | None, number: int) -> Descriptor | None:
        if type_ is None:
            return None
        field: FieldDescriptor | None = type_.fields_by_number.get(number)
        if field is None and type_.is_extendable:
            try:
                field = self._pool.FindExtensionByNumber(type_, number)
            except KeyError:
                return None
        return None if field is None else field.message_type


def without_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Which message of its file a message is, as Confluent's serializers put it before the data. Raises NotDecoded."""
    # | count zigzag varint | index zigzag varint ... | data |; the first message is a single zero
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= _INDEXES_MAX:
        raise NotDecoded(f"a message has no {count} indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        indexes.append(index)
    return tuple(indexes), data[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise NotDecoded("it ends before the indexes of its message do")
    unsigned, at = _varint(data, at)
    return (unsigned >> 1) ^ -(unsigned & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the place behind it. One that does not end is as good as any: its reader refuses it."""
    found = shift = 0
    for byte in data[at : at + _VARINT_BYTES_MAX]:
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return found, at


def _messages(
    messages: Sequence[DescriptorProto], prefix: str
) -> Iterator[tuple[str, DescriptorProto]]:
    for each in messages:
        name = f"{prefix}.{each.name}" if prefix else each.name
        yield name, each
        nested: Any = each.nested_type
        yield from _messages([one for one in nested if not one.options.map_entry], name)


def _used(message: DescriptorProto) -> set[str]:
    """The types of the fields of a message, and of the messages that are declared in it."""
    found = {each.type_name.removeprefix(".") for each in message.field}
    for nested in message.nested_type:
        found |= _used(nested)
    return found
