"""Claim check: large values go to a blob store, and their messages carry references to them."""

import uuid
from typing import Any, Final, NamedTuple, Protocol

from zhumq.client.blob_reference import REFERENCE_HEADER, REFERENCE_VERSION, BlobReference
from zhumq.client.errors import BlobReferenceInvalid
from zhumq.client.message import HeaderPairs, Headers, pairs_of

# Kafka's brokers refuse messages of more than about 1 MB.
LARGER_THAN_BYTES: Final = 100_000
BLOB_BYTES_MAX: Final = 256 * 1024 * 1024


class BlobStore(Protocol):
    """Keeps large values by name: a folder, a bucket, a database. Names are 32 hexadecimal digits, each put once."""

    def put(self, name: str, data: bytes) -> None:
        """Return when the data is durable: its message is sent then."""

    def get(self, name: str, size_max: int) -> bytes:
        """The data, of which the caller needs at most the first `size_max` bytes. Raises BlobMissing."""

    def delete(self, name: str) -> None:
        """Delete a blob. One that is not there is no error."""


class Received(Protocol):
    """A Message, a Task, or any other message that was read."""

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Headers: ...


class Sender(Protocol):
    """A Producer, a transaction, or anything else that sends messages."""

    @property
    def send(self) -> Any: ...


class Packed(NamedTuple):
    """What is sent in place of a value and its headers."""

    value: bytes | None
    headers: list[tuple[str, bytes | str | None]]


class ClaimCheck:
    """Sends values of any size through a blob store, and gets them back.

    A value of more than `larger_than` bytes is stored, and its message carries a reference with its size and SHA-256.
    `unpack` loads it when the program asks for it. Smaller values are sent as they are, so that all messages of
    a topic can be read in the same way.

    >>> import tempfile, zhumq
    >>> claims = zhumq.ClaimCheck(zhumq.FileStore(tempfile.mkdtemp()), larger_than=1_000)
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     claims.send(producer, "events", b"x" * 5_000_000, key=b"film", partition=0)
    >>> with zhumq.Consumer("events", group="docs-claims", bootstrap=bootstrap) as consumer:
    ...     for message in consumer:
    ...         print(len(message.value), len(claims.unpack(message)))
    ...         break
    134 5000000
    """

    def __init__(
        self,
        store: BlobStore,
        *,
        larger_than: int = LARGER_THAN_BYTES,
        size_max: int = BLOB_BYTES_MAX,
    ) -> None:
        """`size_max` is the largest value in bytes that is stored or loaded: a value is in memory as a whole."""
        if not 0 <= larger_than <= size_max:
            raise ValueError(f"larger_than={larger_than} is not between 0 and size_max={size_max}")
        self._store = store
        self._larger_than = larger_than
        self._size_max = size_max

    def send(
        self,
        sender: Sender,
        topic: str,
        value: bytes | None,
        *,
        headers: HeaderPairs | None = None,
        **options: Any,
    ) -> None:
        """`sender.send` with the value packed; `options` are the sender's. A blob whose message was refused at once
        is deleted; one whose message is lost later goes with the clean-up by age."""
        packed = self.pack(value, headers=headers)
        try:
            sender.send(topic, packed.value, headers=packed.headers, **options)
        except BaseException:
            self._delete(packed.value, packed.headers)
            raise

    def pack(self, value: bytes | None, *, headers: HeaderPairs | None = None) -> Packed:
        """Store a large value; send what is returned, with any producer. Raises ValueError for one that is too large."""
        pairs = pairs_of(headers)
        if any(name == REFERENCE_HEADER for name, _ in pairs):
            raise ValueError(f"the header {REFERENCE_HEADER} is set by ClaimCheck")
        if value is None or len(value) <= self._larger_than:
            return Packed(value, pairs)
        if len(value) > self._size_max:
            raise ValueError(
                f"a value of {len(value)} bytes is larger than size_max={self._size_max}"
            )
        name = uuid.uuid4().hex
        reference = BlobReference.of(name, value)
        self._store.put(name, value)
        return Packed(reference.encode(), [*pairs, (REFERENCE_HEADER, REFERENCE_VERSION)])

    def unpack(self, message: Received) -> bytes | None:
        """The value that was sent. Raises BlobMissing, BlobDamaged or BlobReferenceInvalid."""
        reference = reference_of(message.value, message.headers)
        if reference is None:
            return message.value
        if reference.size > self._size_max:
            raise BlobReferenceInvalid(
                f"blob {reference.blob} has {reference.size} bytes, more than size_max={self._size_max}:"
                " raise size_max, or reject the message"
            )
        value = self._store.get(reference.blob, reference.size + 1)
        reference.check(value)
        return value

    def delete(self, message: Received) -> None:
        """Delete the blob of a message that no other group reads. Without this, clean up by age."""
        self._delete(message.value, message.headers)

    def _delete(self, value: bytes | None, headers: Any) -> None:
        reference = reference_of(value, headers)
        if reference is not None:
            self._store.delete(reference.blob)


def reference_of(value: bytes | None, headers: Headers) -> BlobReference | None:
    """The reference that a message carries; None if its value is its own. Raises BlobReferenceInvalid."""
    version: bytes | None = None
    is_reference = False
    for name, each in headers:
        if name == REFERENCE_HEADER:
            version, is_reference = each, True
    if not is_reference:
        return None
    if version != REFERENCE_VERSION:
        raise BlobReferenceInvalid(
            f"{REFERENCE_HEADER}={version!r} is of another version: update zhumq in this program"
        )
    return BlobReference.parse(value)
