"""What the compiler of .proto files is given and gives back."""

from collections.abc import Callable, Mapping
from typing import Final

MAIN: Final = "default.proto"  # the file that a schema is, which has no name of its own

# Files by their import paths, and the one to compile: its FileDescriptorProto and those of its imports, serialized, each
# after those that it imports. Raises InvalidSchema.
Compile = Callable[[Mapping[str, str], str], list[bytes]]
