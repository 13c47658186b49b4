"""Runs the programs of examples/patterns, and writes what they print into their pages in docs/patterns."""

import subprocess
import sys
from pathlib import Path

from docs import rewrite

REPOSITORY = Path(__file__).resolve().parent.parent
PROGRAMS = REPOSITORY / "examples" / "patterns"
PAGES = REPOSITORY / "docs" / "patterns"
SECONDS_MAX = 120
MADE_BY = "make patterns"
# What a program writes beside its output.
OPTIONS = {"peak_shaving": ["--chart", str(PAGES / "peak_shaving.svg")]}


def names() -> list[str]:
    """The programs; files that begin with _ are what they share."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py") if not path.name.startswith("_"))


def run(name: str, *options: str) -> str:
    """What a program prints. Raises CalledProcessError if it fails."""
    done = subprocess.run(
        [sys.executable, PROGRAMS / f"{name}.py", *options],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode or done.stderr:
        raise SystemExit(f"{name}.py failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def with_program(page: str, name: str) -> str:
    """The page with the text of its program."""
    source = (PROGRAMS / f"{name}.py").read_text()
    return rewrite(page, "program", f"```python\n{source}```", MADE_BY)


def with_output(page: str, output: str) -> str:
    """The page with what its program printed."""
    return rewrite(page, "output", f"```\n{output}```", MADE_BY)


def main() -> None:
    for name in sys.argv[1:] or names():
        path = PAGES / f"{name}.md"
        page = with_program(path.read_text(), name)
        path.write_text(with_output(page, run(name, *OPTIONS.get(name, []))))
        sys.stdout.write(f"{path.relative_to(REPOSITORY)}: written\n")


if __name__ == "__main__":
    main()
