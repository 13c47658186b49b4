"""Generates encoders: runs of fixed-size fields become one pack, records are passed on unchanged."""

import struct

from zhumq.protocol.primitives import SMALL_UVARINTS, encode_uvarint
from zhumq.protocol.schema import (
    STRING,
    ArrayOf,
    FieldSpec,
    Fixed,
    KeptList,
    Marker,
    Message,
    StructOf,
    WireType,
    default_expression,
    fields_of,
)
from zhumq.protocol.source import Source


class EncodeSource(Source):
    """Writes `encode(o, out)`: o is the message, out the list its parts are appended to.

    A field that the version does not have is left out. None is written as the empty value where the
    version has no null, so that one response serves old versions too.
    """

    def __init__(self, version: int, *, flexible: bool) -> None:
        super().__init__(version, flexible=flexible)
        self._run: list[tuple[str, str]] = []  # (struct code, expression) not yet packed
        self._pieces: list[str] = []  # expressions of parts not yet appended
        self._out = "out"
        self.names.update(UV=SMALL_UVARINTS, uvarint=encode_uvarint)

    def struct(self, message: type[Message], variable: str) -> None:
        tagged: list[FieldSpec] = []
        for spec in fields_of(message):
            if self.version not in spec.versions:
                continue
            if spec.tag is not None:
                tagged.append(spec)
                continue
            source = f"{variable}.{spec.name}"
            self._value(spec.type, source, nullable=self.version in spec.nullable)
        if self.flexible:
            self._tagged_section(variable, sorted(tagged, key=lambda spec: spec.tag or 0))

    def flush(self) -> None:
        """Emits the deferred appends. Called before every line that changes the control flow."""
        self._close_run()
        pieces, self._pieces = self._pieces, []
        if len(pieces) == 1:
            self.emit(f"{self._out}.append({pieces[0]})")
        elif pieces:
            self.emit(f"{self._out} += ({', '.join(pieces)})")

    def _close_run(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if set(codes) == {"x"}:
            self._pieces.append(repr(bytes(len(codes))))
            return
        layout, _ = self.struct_named(codes)
        values = ", ".join(expression for _, expression in run if expression)
        self._pieces.append(f"{layout}.pack({values})")

    def _value(self, wire_type: WireType, source: str, *, nullable: bool) -> None:
        match wire_type:
            case Fixed(code="16s"):
                self._run.append(("16s", f"{source}.bytes"))
            case Fixed(code=code):
                self._run.append((code, source))
            case Marker():
                self._blob(wire_type, source, nullable=nullable)
            case ArrayOf(element, may_be_kept=True):
                self._kept_array(element, source, nullable=nullable)
            case ArrayOf(element):
                self._array(element, source, nullable=nullable)
            case StructOf(message):
                self._struct_value(message, source, nullable=nullable)

    def _blob(self, wire_type: Marker, source: str, *, nullable: bool) -> None:
        content, length = self.fresh("v"), self.fresh("n")
        self.emit(f"{content} = {source}")
        encoded = f"{content}.encode()" if wire_type is STRING else content
        code = "h" if wire_type is STRING else "i"
        self.emit(
            f"if {content} is None: {content} = b''; {length} = {self._null(nullable=nullable)}"
        )
        with self.block("else:"):
            if wire_type is STRING:
                self.emit(f"{content} = {encoded}")
            self.emit(f"{length} = len({content})" + (" + 1" if self.flexible else ""))
        self._length(length, code)
        self._close_run()
        self._pieces.append(content)

    def _null(self, *, nullable: bool) -> int:
        """The length that means null; where the version has no null, the empty length."""
        if self.flexible:
            return 0 if nullable else 1
        return -1 if nullable else 0

    def _length(self, length: str, legacy_code: str) -> None:
        if not self.flexible:
            self._run.append((legacy_code, length))
            return
        self._close_run()
        self._pieces.append(f"UV[{length}] if {length} < 128 else uvarint({length})")

    def _kept_array(self, element: WireType, source: str, *, nullable: bool) -> None:
        """What a KeptList was encoded to is its encoding from then on."""
        self.flush()
        elements, kept, encoded = self.fresh("a"), self.fresh("k"), self.fresh("v")
        self.named("KeptList", KeptList)
        self.emit(f"{elements} = {source}")
        self.emit(f"{kept} = {elements}.encodings if type({elements}) is KeptList else {{}}")
        self.emit(f"{encoded} = {kept}.get({self.version})")
        with self.block(f"if {encoded} is None:"):
            outer, self._out = self._out, self.fresh("l")
            self.emit(f"{self._out} = []")
            self._array(element, elements, nullable=nullable)
            self.flush()
            self.emit(f"{encoded} = {kept}[{self.version}] = b''.join({self._out})")
            self._out = outer
        self._pieces.append(encoded)

    def _array(self, element: WireType, source: str, *, nullable: bool) -> None:
        elements, count = self.fresh("a"), self.fresh("n")
        self.emit(f"{elements} = {source}")
        self.emit(
            f"if {elements} is None: {elements} = (); {count} = {self._null(nullable=nullable)}"
        )
        self.emit(f"else: {count} = len({elements})" + (" + 1" if self.flexible else ""))
        self._length(count, "i")
        if isinstance(element, Fixed) and element.code != "16s":
            self.named("pack", struct.pack)
            self._close_run()
            self._pieces.append(f"pack(f'>{{len({elements})}}{element.code}', *{elements})")
            return
        self.flush()
        item = self.fresh("o")
        with self.block(f"for {item} in {elements}:"):
            self._value(element, item, nullable=False)
            self.flush()

    def _struct_value(self, message: type[Message], source: str, *, nullable: bool) -> None:
        variable = self.fresh("o")
        self.emit(f"{variable} = {source}")
        if not nullable:
            self.struct(message, variable)
            return
        # KIP-893: a nullable struct is preceded by a byte, negative for null.
        self.flush()
        with self.block(f"if {variable} is None:"):
            self.emit(f"{self._out}.append(b'\\xff')")
        with self.block("else:"):
            self._pieces.append("b'\\x01'")
            self.struct(message, variable)
            self.flush()

    def _tagged_section(self, variable: str, tagged: list[FieldSpec]) -> None:
        if not tagged:
            self._run.append(("x", ""))
            return
        self.flush()
        differs = [self._differs(spec, f"{variable}.{spec.name}") for spec in tagged]
        with self.block(f"if not ({' or '.join(differs)}):"):
            self.emit(f"{self._out}.append(b'\\x00')")
        with self.block("else:"):
            self._tagged_fields(variable, tagged, differs)

    def _tagged_fields(self, variable: str, tagged: list[FieldSpec], differs: list[str]) -> None:
        outer, section, count = self._out, self.fresh("l"), self.fresh("n")
        self.emit(f"{section} = []; {count} = 0")
        for spec, condition in zip(tagged, differs, strict=True):
            with self.block(f"if {condition}:"):
                self._out = self.fresh("l")
                self.emit(f"{self._out} = []")
                # A tagged struct that may be None is one that may be absent; it has no null.
                nullable = self.version in spec.nullable and not isinstance(spec.type, StructOf)
                self._value(spec.type, f"{variable}.{spec.name}", nullable=nullable)
                self.flush()
                value = self.fresh("v")
                self.emit(f"{value} = b''.join({self._out})")
                self.emit(f"{section} += (UV[{spec.tag}], uvarint(len({value})), {value})")
                self.emit(f"{count} += 1")
        self._out = outer
        self.emit(f"{outer}.append(UV[{count}])")
        self.emit(f"{outer} += {section}")

    def _differs(self, spec: FieldSpec, source: str) -> str:
        """The condition under which a tagged field is written: it is not its default."""
        if isinstance(spec.type, StructOf):
            inner = fields_of(spec.type.message)
            any_differs = " or ".join(self._differs(s, f"{source}.{s.name}") for s in inner)
            return f"({source} is not None and ({any_differs}))"
        if isinstance(spec.type, ArrayOf) and spec.default is not None:
            return source
        default, _ = default_expression(spec, self.names)
        if default == "None":
            return f"{source} is not None"
        return f"{source} != {default}"
