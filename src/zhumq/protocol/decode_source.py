"""Generates decoders: runs of fixed-size fields become one unpack, each length is checked against the frame."""

import struct
from typing import NoReturn

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.primitives import (
    STRING_BYTES_MAX,
    decode_uvarint,
    skip_tagged_fields,
    uuid_from_bytes,
)
from zhumq.protocol.schema import (
    RECORDS,
    STRING,
    ArrayOf,
    FieldSpec,
    Fixed,
    Marker,
    Message,
    StructOf,
    WireType,
    default_expression,
    fields_of,
)
from zhumq.protocol.source import ELEMENTS_MAX, Source, size_min


def refuse(what: str) -> NoReturn:
    raise MalformedFrame(what)


class DecodeSource(Source):
    """Writes `decode(b, p) -> (message, p)`: b is the frame, p the position in it."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        super().__init__(version, flexible=flexible)
        self._run: list[tuple[str, str]] = []  # (struct code, target) of fixed fields not yet read
        self.names.update(
            new=object.__new__,
            refuse=refuse,
            uvarint=decode_uvarint,
            skip_tags=skip_tagged_fields,
            uuid_of=uuid_from_bytes,
        )
        self.emit("end = len(b)")
        self.emit(f"left = {ELEMENTS_MAX}")

    def struct(self, message: type[Message], variable: str) -> None:
        self.emit(f"{variable} = new({self.named(message.__name__, message)})")
        tagged: list[FieldSpec] = []
        for spec in fields_of(message):
            target = f"{variable}.{spec.name}"
            if self.version in spec.versions and spec.tag is None:
                self._value(spec.type, target, nullable=self.version in spec.nullable)
                continue
            default, _ = default_expression(spec, self.names)
            self.emit(f"{target} = {default}")
            if self.version in spec.versions and self.flexible:
                tagged.append(spec)
        if self.flexible:
            self._tagged_section(variable, tagged)

    def flush(self) -> None:
        """Emits the deferred reads. Called before every line that needs the values or the position."""
        run, self._run = self._run, []
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self.emit(f"{run[0][1]} = b[p]; p += 1")
            return
        layout, size = self.struct_named("".join(code for code, _ in run))
        targets = ", ".join(target for _, target in run)
        self.emit(f"{targets}, = {layout}.unpack_from(b, p); p += {size}")
        for code, target in run:
            if code == "16s":
                self.emit(f"{target} = uuid_of({target})")

    def _value(self, wire_type: WireType, target: str, *, nullable: bool) -> None:
        match wire_type:
            case Fixed(code=code):
                self._run.append((code, target))
            case Marker():
                self._blob(wire_type, target, nullable=nullable)
            case ArrayOf(element):
                self._array(element, target, nullable=nullable)
            case StructOf(message):
                self._struct_value(message, target, nullable=nullable)

    def _length(self, legacy_code: str) -> str:
        """Reads a length; a compact one stays as on the wire, one more than the length."""
        length = self.fresh("n")
        self._run.append(("B" if self.flexible else legacy_code, length))
        self.flush()
        if self.flexible:
            self.emit(f"if {length} > 127: {length}, p = uvarint(b, p - 1)")
        return length

    def _absent(self, length: str) -> str:
        return f"{length} == 0" if self.flexible else f"{length} < 0"

    def _blob(self, wire_type: Marker, target: str, *, nullable: bool) -> None:
        length = self._length("h" if wire_type is STRING else "i")
        name = target.rpartition(".")[2]
        if nullable:
            with self.block(f"if {self._absent(length)}:"):
                self.emit(f"{target} = None")
            with self.block("else:"):
                self._blob_content(wire_type, target, length, name)
        else:
            self.emit(f"if {self._absent(length)}: refuse('{name} may not be null')")
            self._blob_content(wire_type, target, length, name)

    def _blob_content(self, wire_type: Marker, target: str, length: str, name: str) -> None:
        end = self.fresh("e")
        if wire_type is STRING and self.flexible:
            self.emit(f"if {length} > {STRING_BYTES_MAX + 1}: refuse('{name} is too long')")
        self.emit(f"{end} = p + {length}" + (" - 1" if self.flexible else ""))
        self.emit(f"if {end} > end: refuse('{name} reaches past the end of the frame')")
        if wire_type is STRING:
            self.emit(f"{target} = b[p:{end}].decode()")
        elif wire_type is RECORDS:
            self.emit(f"{target} = memoryview(b)[p:{end}]")
        else:
            self.emit(f"{target} = b[p:{end}]")
        self.emit(f"p = {end}")

    def _array(self, element: WireType, target: str, *, nullable: bool) -> None:
        count = self._length("i")
        name = target.rpartition(".")[2]
        if nullable:
            with self.block(f"if {self._absent(count)}:"):
                self.emit(f"{target} = None")
            with self.block("else:"):
                self._array_content(element, target, count, name)
        else:
            self.emit(f"if {self._absent(count)}: refuse('{name} may not be null')")
            self._array_content(element, target, count, name)

    def _array_content(self, element: WireType, target: str, count: str, name: str) -> None:
        if self.flexible:
            self.emit(f"{count} -= 1")
        smallest = size_min(element, self.version, flexible=self.flexible)
        self.emit(f"if {count} * {smallest} > end - p: refuse('{name} claims too many elements')")
        self.emit(f"left -= {count}")
        self.emit(f"if left < 0: refuse('more than {ELEMENTS_MAX} array elements in a message')")
        if isinstance(element, Fixed) and element.code != "16s":
            self.named("unpack_from", struct.unpack_from)
            self.emit(f"{target} = list(unpack_from(f'>{{{count}}}{element.code}', b, p))")
            self.emit(f"p += {count} * {element.size}")
            return
        elements = self.fresh("a")
        item = self.fresh("o")
        self.emit(f"{target} = {elements} = []")
        with self.block(f"for _ in range({count}):"):
            self._value(element, item, nullable=False)
            self.flush()
            self.emit(f"{elements}.append({item})")

    def _struct_value(self, message: type[Message], target: str, *, nullable: bool) -> None:
        if not nullable:
            if "." not in target:
                self.struct(message, target)
                return
            variable = self.fresh("o")
            self.struct(message, variable)
            self.emit(f"{target} = {variable}")
            return
        # KIP-893: a nullable struct is preceded by a byte, negative for null.
        present = self.fresh("n")
        self._run.append(("b", present))
        self.flush()
        with self.block(f"if {present} < 0:"):
            self.emit(f"{target} = None")
        with self.block("else:"):
            self._struct_value(message, target, nullable=False)
            self.flush()

    def _tag_nullable(self, spec: FieldSpec) -> bool:
        # A tagged struct that may be None is one that may be absent; it has no null on the wire.
        return self.version in spec.nullable and not isinstance(spec.type, StructOf)

    def _tagged_section(self, variable: str, tagged: list[FieldSpec]) -> None:
        count = self.fresh("n")
        self._run.append(("B", count))
        self.flush()
        if not tagged:
            self.emit(f"if {count}: p = skip_tags(b, p - 1)")
            return
        with self.block(f"if {count}:"):
            self.emit(f"{count}, p = uvarint(b, p - 1)")
            tag, size, end = self.fresh("t"), self.fresh("s"), self.fresh("e")
            with self.block(f"for _ in range({count}):"):
                self.emit(f"{tag}, p = uvarint(b, p)")
                self.emit(f"{size}, p = uvarint(b, p)")
                self.emit(f"{end} = p + {size}")
                self.emit(
                    f"if {end} > end: refuse('a tagged field reaches past the end of the frame')"
                )
                for spec in tagged:
                    with self.block(f"if {tag} == {spec.tag}:"):
                        self._value(
                            spec.type, f"{variable}.{spec.name}", nullable=self._tag_nullable(spec)
                        )
                        self.flush()
                        self.emit(
                            f"if p != {end}: refuse('{spec.name} does not fill its tagged field')"
                        )
                # Unknown tags are skipped: newer peers add fields as tags.
                self.emit(f"p = {end}")
