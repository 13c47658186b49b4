"""The pipelines that come with zhumq, as files to copy and change."""

from pathlib import Path
from typing import Final

from zhumq.model.errors import ZhumqError

LIBRARY: Final = Path(__file__).resolve().parent / "library"


class NoSuchPipeline(ZhumqError):
    """Neither a file nor one of the pipelines that come with zhumq."""


def shipped() -> dict[str, Path]:
    """The pipelines that come with zhumq, by name."""
    return {path.stem: path for path in sorted(LIBRARY.glob("*.yml"))}


def find_pipeline(word: str) -> Path:
    """The file of a pipeline, given by its path or by the name of one that comes with zhumq."""
    path = Path(word)
    if path.is_file():
        return path
    known = shipped()
    if word.removesuffix(".yml") in known and path.name == word:
        return known[word.removesuffix(".yml")]
    raise NoSuchPipeline(
        f"there is no file {word!r}, and no pipeline of that name: zhumq comes with"
        f" {', '.join(known)}"
    )
