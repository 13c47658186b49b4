"""What a message carries in place of a large value: the name, size and SHA-256 of a blob. Pure."""

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from zhumq.client.errors import BlobDamaged, BlobReferenceInvalid

# A message with this header has a reference in its value. Any Kafka client can read both.
REFERENCE_HEADER: Final = "zhumq-claim-check"
REFERENCE_VERSION: Final = b"1"
REFERENCE_BYTES_MAX: Final = 1_000
# Also a file name that leads nowhere else, whatever a message says.
BLOB_NAME: Final = re.compile(r"[0-9a-f]{32}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobReference:
    """Where a value is stored, and how to recognise that it is intact."""

    blob: str
    size: int
    sha256: str

    @classmethod
    def of(cls, blob: str, value: bytes) -> "BlobReference":
        return cls(blob=blob, size=len(value), sha256=sha256(value).hexdigest())

    @classmethod
    def parse(cls, text: bytes | None) -> "BlobReference":
        """The reference in the value of a message. Raises BlobReferenceInvalid."""
        if text is None or len(text) > REFERENCE_BYTES_MAX:
            size = "no value" if text is None else f"a value of {len(text)} bytes"
            raise BlobReferenceInvalid(f"{size} is not a reference to a blob: {_HELP}")
        try:
            fields = json.loads(text)
            blob, size_, digest = fields["blob"], fields["size"], fields["sha256"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BlobReferenceInvalid(
                f"{text[:100]!r} is not a reference to a blob: {_HELP}"
            ) from error
        if not (isinstance(blob, str) and BLOB_NAME.fullmatch(blob)):
            raise BlobReferenceInvalid(f"{blob!r} is not the name of a blob: {_HELP}")
        if not (isinstance(digest, str) and _SHA256.fullmatch(digest)):
            raise BlobReferenceInvalid(f"{digest!r} is not a SHA-256 in hexadecimal: {_HELP}")
        if type(size_) is not int or size_ < 0:
            raise BlobReferenceInvalid(f"{size_!r} is not the size of a blob: {_HELP}")
        return cls(blob=blob, size=size_, sha256=digest)

    def encode(self) -> bytes:
        fields = {"blob": self.blob, "size": self.size, "sha256": self.sha256}
        return json.dumps(fields, separators=(",", ":")).encode()

    def check(self, value: bytes) -> None:
        """Raise BlobDamaged unless this is the value that was stored."""
        if len(value) != self.size:
            found = f"{len(value)} bytes, not {self.size}"
            if len(value) > self.size:
                found = f"more than {self.size} bytes"
            raise BlobDamaged(f"blob {self.blob} has {found}: restore it, or send the value again")
        if sha256(value).hexdigest() != self.sha256:
            raise BlobDamaged(
                f"blob {self.blob} does not have the SHA-256 of its message: restore it, or send the value again"
            )


_HELP: Final = (
    f"send large values with zhumq.ClaimCheck, or leave out the header {REFERENCE_HEADER}"
)
