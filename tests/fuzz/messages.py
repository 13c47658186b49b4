"""Random well-formed requests: any API, any version, with plausible values and edge cases."""

import random
import uuid
from dataclasses import dataclass, field

from zhumq.protocol.api import APIS, ApiKey, RequestHeader, encode_request
from zhumq.protocol.schema import ArrayOf, Fixed, Marker, Message, StructOf, WireType, fields_of
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression

TOPICS = ("fuzz-a", "fuzz-compacted")
GROUPS = ("fuzz-group", "fuzz-other-group")
STRINGS = (
    *TOPICS,
    *TOPICS,
    *GROUPS,
    "",
    "consumer",
    "connect",
    "range",
    "fuzz-member",
    "retention.ms",
    "cleanup.policy",
    "compact",
    "100",
    "-1",
    "0",
    "__consumer_offsets",
    ".",
    "..",
    "../../fuzz",
    "no/slash",
    "nul\x00nul",
    "\u00fc\U0001f4a5",
    "x" * 249,
    "x" * 250,
    "x" * 32_767,
)
SMALL_NUMBERS = (0, 0, 0, 1, 1, 2, 3, 5, 10, 100, -1, -2, -3)
# Short waits: the fuzzer waits for the answers.
SHORT_WAITS = {"max_wait_ms", "timeout_ms", "session_timeout_ms", "rebalance_timeout_ms"}
SHORT_WAIT_MS_MAX = 50
ELEMENTS_MAX = 3
COMPRESSIONS = tuple(Compression)


@dataclass(slots=True)
class Messages:
    """Draws requests from a seed. Real topic ids let requests by id reach the partitions."""

    random: random.Random
    topic_ids: list[uuid.UUID] = field(default_factory=list)

    def frame(self, key: ApiKey | None = None) -> bytes:
        """A valid frame with its size."""
        if key is None:
            key = self.random.choice(list(APIS))
        spec = APIS[key]
        version = self.random.randint(spec.min_version, spec.max_version)
        client_id = self.random.choice(("fuzz", "", None))
        header = RequestHeader(key, version, self.random.getrandbits(31), client_id)
        return encode_request(header, self.message(spec.request, version))

    def message(self, cls: type[Message], version: int) -> Message:
        values = {
            spec.name: self._value(spec.name, spec.type, version)
            for spec in fields_of(cls)
            if version in spec.versions
            and not (version in spec.nullable and self.random.random() < 0.1)
        }
        return cls(**values)

    def batch(self) -> bytes:
        """A valid record batch."""
        draw = self.random
        records = [
            Record(
                offset=delta,
                timestamp=draw.choice((0, -1, 1_700_000_000_000, 2**62)),
                key=draw.choice((None, b"", b"key")),
                value=draw.choice((None, b"", draw.randbytes(draw.randint(0, 300)))),
                headers=(),
            )
            for delta in range(draw.randint(1, 5))
        ]
        producer_id = draw.choice((-1, -1, 0, 1, 2**40))
        return build_batch(
            records,
            base_offset=draw.choice((0, 5, -1, 2**62)),
            compression=draw.choice(COMPRESSIONS),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else draw.choice((0, 1, 32_767)),
            base_sequence=-1 if producer_id < 0 else draw.choice((0, 1, 2**31 - 1)),
            is_transactional=draw.random() < 0.1,
            is_control=draw.random() < 0.1,
        )

    def records(self) -> bytes | None:
        """The records of a produce request: batches, broken batches, nothing, random bytes."""
        draw = self.random
        kind = draw.random()
        if kind < 0.5:
            return self.batch()
        if kind < 0.8:
            return mutate(draw, self.batch() * draw.randint(1, 3))
        return draw.choice((None, b"", draw.randbytes(draw.randint(1, 200)), b"\x00" * 61))

    def _value(self, name: str, kind: WireType, version: int) -> object:
        draw = self.random
        match kind:
            case ArrayOf(element):
                elements = [
                    self._value(name, element, version)
                    for _ in range(draw.randint(0, ELEMENTS_MAX))
                ]
                if elements and draw.random() < 0.1:
                    elements.append(elements[0])  # duplicates in one request
                return elements
            case StructOf(message):
                return self.message(message, version)
            case Fixed(code="?"):
                return draw.random() < 0.5
            case Fixed(code="16s"):
                return draw.choice((*self.topic_ids, uuid.UUID(int=0), uuid.UUID(int=7)))
            case Fixed(code="d"):
                return draw.choice((0.0, 1.5, float("inf"), float("nan")))
            case Fixed(code, size):
                return self._number(name, size * 8, signed=code.islower())
            case Marker(name="string"):
                return draw.choice(STRINGS)
            case Marker(name="records"):
                return self.records()
            case Marker():
                return draw.choice((b"", b"\x00\x00", draw.randbytes(draw.randint(1, 40))))

    def _number(self, name: str, bits: int, *, signed: bool) -> int:
        draw = self.random
        if name in SHORT_WAITS:
            return draw.choice((-1, 0, draw.randint(0, SHORT_WAIT_MS_MAX)))
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        kind = draw.random()
        if kind < 0.8:
            return max(low, min(high, draw.choice(SMALL_NUMBERS)))
        return draw.choice((low, high)) if kind < 0.9 else draw.randint(low, high)


def mutate(draw: random.Random, data: bytes) -> bytes:
    """The same bytes with a few of them broken, moved, missing or too many."""
    broken = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        if not broken:
            break
        position = draw.randrange(len(broken))
        match draw.randrange(8):
            case 0:
                broken[position] ^= 1 << draw.randrange(8)
            case 1:
                broken[position] = draw.choice((0x00, 0xFF, 0x7F, 0x80))
            case 2:
                del broken[position : position + draw.choice((1, 2, 4, 50))]
            case 3:
                broken[position:position] = draw.randbytes(draw.choice((1, 2, 4, 50)))
            case 4:
                broken[position : position + 4] = draw.choice(
                    (
                        b"\xff\xff\xff\xff",
                        b"\x7f\xff\xff\xff",
                        b"\x80\x00\x00\x00",
                        b"\x00\x00\x00\x00",
                    )
                )
            case 5:
                broken[position : position + 1] = b"\xff" * draw.choice((5, 10, 40))  # varint bomb
            case 6:
                del broken[position:]
            case _:
                length = draw.randint(1, 30)
                broken[position:position] = broken[position : position + length]
    return bytes(broken)


def mutated_frame(draw: random.Random, frame: bytes) -> bytes:
    """A frame with a broken body; its size is mostly right, so that the decoder sees the rest."""
    body = mutate(draw, frame[4:])
    if draw.random() < 0.9 and body:
        return len(body).to_bytes(4, "big") + body
    return mutate(draw, frame)
