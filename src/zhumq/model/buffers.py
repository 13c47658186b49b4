"""What bytes may come in, and when to copy them."""

from typing import Final

Buffer = bytes | bytearray | memoryview
# A copy of so few bytes is cheaper than a view of them, and so is all that is done with it.
COPIED_BYTES_MAX: Final = 1024
