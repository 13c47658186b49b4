"""Runs the compiler of .proto files, in a process of its own: its input comes from any client."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from zhumq.schemas.errors import InvalidSchema

SECONDS_MAX: Final = 15.0
_REASON_CHARACTERS_MAX: Final = 500
_COMPILER: Final = "grpc_tools.protoc"


def compile_protobuf(files: Mapping[str, str], main: str) -> list[bytes]:
    """The serialized FileDescriptorProto of a file and of those it imports, each after those that it imports.

    Raises InvalidSchema with what the compiler says.
    """
    if find_spec("grpc_tools") is None:
        raise InvalidSchema("the text of Protobuf schemas needs grpcio-tools: pip install 'zhumq[registry]'")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="zhumq-protoc-") as folder:
        root = Path(folder)
        for name, text in files.items():
            try:
                path = (root / "in" / name).resolve()
                is_inside = path.is_relative_to((root / "in").resolve())
                if is_inside:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8")
            except (OSError, ValueError):
                is_inside = False
            if not is_inside:
                raise InvalidSchema(f"{name[:100]!r} cannot be an import path")
        output = root / "out"
        command = [sys.executable, "-m", _COMPILER, "--include_imports", f"--proto_path={root / 'in'}"]  # fmt: skip
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and no argument of a client
                [*command, f"--descriptor_set_out={output}", main],
                capture_output=True,
                timeout=SECONDS_MAX,
                check=False,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(
                f"the schema takes longer than {SECONDS_MAX:g} s to compile"
            ) from None
        if done.returncode:
            words = done.stderr.decode(errors="replace").replace(str(root / "in") + "/", "")
            reason = "; ".join(line for line in words.splitlines() if line)
            raise InvalidSchema(
                f"the Protobuf schema is invalid: {reason[:_REASON_CHARACTERS_MAX]}"
            )
        # Imported here: only schemas of this type need it.
        from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415

        found = FileDescriptorSet.FromString(output.read_bytes())
        return [each.SerializeToString(deterministic=True) for each in found.file]
