"""A folder on any file system that Spark knows: this machine's, HDFS, an object store."""

import json
import uuid
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from zhumq.model.errors import ZhumqError

TEXT_BYTES_MAX: Final = 64 * 1024 * 1024  # of a document; the state of a table is far smaller


class FolderFailed(ZhumqError):
    """An operation of the file system failed."""


class Folder:
    """Files below one path, named relative to it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        context = spark.sparkContext
        assert context._jvm is not None
        self._hadoop: Any = context._jvm.org.apache.hadoop.fs
        configuration = context._jsc.hadoopConfiguration()
        given = self._hadoop.Path(path)
        system: Any = given.getFileSystem(configuration)
        self._context: Any = None
        if system.getUri().getScheme() == "file":
            # Hadoop keeps checksums in separate files and renames them after the file: a kill between
            # the two leaves a document that cannot be read. The rename of the raw file system is atomic.
            system = system.getRawFileSystem()
        else:
            files = self._hadoop.FileContext
            self._context = files.getFileContext(system.getUri(), configuration)
        self._system: Any = system
        assert context._gateway is not None
        kind = self._hadoop.Options.Rename
        self._overwrite: Any = context._gateway.new_array(kind, 1)  # Java's varargs
        self._overwrite[0] = kind.OVERWRITE
        self._overwrite_nothing: Any = context._gateway.new_array(kind, 0)
        self._nio: Any = context._jvm.java.nio.file
        self._root: Any = system.makeQualified(given)
        self.path = str(self._root.toString())

    def inside(self, name: str) -> str:
        """The full path of a name."""
        return f"{self.path}/{name}" if name else self.path

    def exists(self, name: str) -> bool:
        return bool(self._do(f"look at {name}", lambda: self._system.exists(self._path(name))))

    def names(self, name: str) -> list[str]:
        """The names directly in a folder; empty if the folder does not exist."""
        if not self.exists(name):
            return []
        entries = self._do(f"list {name}", lambda: self._system.listStatus(self._path(name)))
        return sorted(str(entry.getPath().getName()) for entry in entries)

    def files(self, name: str) -> list[str]:
        """Every file below a folder, relative to that folder."""
        if not self.exists(name):
            return []
        path = self._path(name)
        prefix = str(self._system.makeQualified(path).toString()) + "/"
        found = []
        entries = self._do(f"list {name}", lambda: self._system.listFiles(path, True))
        while entries.hasNext():
            found.append(str(entries.next().getPath().toString()).removeprefix(prefix))
        return sorted(found)

    def move(self, source: str, target: str) -> None:
        """Rename a file, and create the target's folder. The target must not exist."""
        path = self._path(target)
        self._do(f"make the folder of {target}", lambda: self._system.mkdirs(path.getParent()))
        done = self._do(
            f"move {source} to {target}", lambda: self._system.rename(self._path(source), path)
        )
        if not done:
            raise FolderFailed(f"cannot move {self.inside(source)} to {self.inside(target)}")

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its contents, if it exists."""
        self._do(f"remove {name}", lambda: self._system.delete(self._path(name), True))

    def read_document(self, name: str) -> Any | None:
        """A JSON document, or None if it does not exist."""
        raw = self.read(name)
        try:
            return None if raw is None else json.loads(raw)
        except ValueError as error:
            raise FolderFailed(f"{self.inside(name)} is damaged: {error}") from None

    def read(self, name: str) -> bytes | None:
        """The contents of a file, or None if it does not exist."""
        return self.read_bytes(name) if self.exists(name) else None

    def read_bytes(self, name: str) -> bytes:
        """A whole file, which must not be larger than TEXT_BYTES_MAX."""

        def read() -> bytes:
            stream = self._system.open(self._path(name))
            try:
                return bytes(stream.readNBytes(TEXT_BYTES_MAX + 1))
            finally:
                stream.close()

        raw: bytes = self._do(f"read {name}", read)
        if len(raw) > TEXT_BYTES_MAX:
            raise FolderFailed(f"{self.inside(name)} is larger than {TEXT_BYTES_MAX} bytes")
        return raw

    def write_new(self, name: str, raw: bytes) -> bool:
        """Write a whole file atomically unless its name is taken; returns whether it was free.

        Of several writers one succeeds, on file systems whose rename is atomic (a local one, HDFS).
        """
        folder, _, file = name.rpartition("/")
        temporary = f"{folder}/.{file}.{uuid.uuid4().hex}.tmp"

        def write() -> bool:
            path, target = self._path(temporary), self._path(name)
            self._system.mkdirs(path.getParent())
            self._write(path, raw)
            try:
                if self._context is None:
                    # The rename of a local file system replaces a file; a link does not.
                    self._link(path, target)
                else:
                    self._context.rename(path, target, self._overwrite_nothing)
            except Py4JJavaError as error:
                if _is_taken(error):
                    return False
                raise
            finally:
                self._system.delete(path, False)
            return True

        return bool(self._do(f"write {name}", write))

    def write_document(self, name: str, document: Any) -> None:
        """Replace a JSON document atomically."""
        temporary = f"{name}.tmp"
        raw = json.dumps(document, separators=(",", ":")).encode()

        def write() -> None:
            path = self._path(temporary)
            self._write(path, raw)
            if self._context is not None:
                self._context.rename(path, self._path(name), self._overwrite)
            elif not self._system.rename(path, self._path(name)):
                raise FolderFailed(f"cannot replace {self.inside(name)}")

        self._do(f"write {name}", write)

    def _write(self, path: Any, raw: bytes) -> None:
        """Write a file, to the disk."""
        stream = self._system.create(path, True)
        try:
            stream.write(raw)
            stream.hsync()
        finally:
            stream.close()

    def _link(self, path: Any, target: Any) -> None:
        place = self._nio.Paths.get
        self._nio.Files.createLink(place(target.toUri()), place(path.toUri()))

    def _path(self, name: str) -> Any:
        return self._hadoop.Path(self.inside(name))

    def _do(self, doing: str, action: Any) -> Any:
        try:
            return action()
        except Py4JJavaError as error:
            reason = error.java_exception.toString()
            raise FolderFailed(f"cannot {doing} in {self.path}: {reason}") from error


def _is_taken(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getSimpleName()) == "FileAlreadyExistsException"
