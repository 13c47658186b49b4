"""The Python that Spark starts on this machine: the running one, without a slow copy of PySpark."""

import hashlib
import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Final

# Spark puts its own copies of PySpark and Py4J before everything else. They are zips, and Python keeps
# no compiled modules of a zip: each process would compile PySpark anew, which takes 0.7 s of CPU of the
# ten seconds in which Spark expects it to connect.
_WRAPPER: Final = """#!/bin/sh
# Runs the Python of the driver with the PySpark that is installed there.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    {home}/*.zip) ;;
    *) kept=${{kept:+$kept:}}$entry ;;
  esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""


def worker_python(cache_dir: Path, *, spark_home: Path, executable: str = sys.executable) -> Path:
    """A script that starts Python without the zips below Spark's folder; written once."""
    library = shlex.quote(str(spark_home / "python" / "lib"))
    text = _WRAPPER.format(home=library, python=shlex.quote(executable))
    script = cache_dir / f"python-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        draft = script.with_name(f"{script.name}.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(script)  # Another process may write the same script.
    return script
