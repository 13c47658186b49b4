"""The code blocks of a page, and a folder in which they run as a reader would run them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
SECONDS_MAX = 600.0
END_SECONDS_MAX = 120.0
LOOK_AGAIN_SECONDS = 0.05
ANYTHING = "…"  # in an expected line
LANGUAGES = {"sh", "bash", "python"}
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARKER = re.compile(r"<!-- (not run|file|background)(?:: ((?:(?!-->).)*?))? -->\s*\Z", re.DOTALL)
# Commands and programs of a page name the addresses that a broker has by default. The test's broker has others.
_COMMAND = """#!{python}
import sys
from zhumq.cli import options
options.DEFAULT_BOOTSTRAP = "{bootstrap}"
from zhumq.cli.main import main
if sys.argv[1:2] == ["start"] and "--listen" not in sys.argv:
    sys.argv += ["--listen", "{bootstrap}"]
if sys.argv[1:2] == ["start"] and "--http" not in sys.argv:
    sys.argv += ["--http", "{http}"]
sys.exit(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block, with the comment before it that says how it is run, and what the page says it prints."""

    language: str
    text: str
    line: int
    marker: str
    argument: str
    prints: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """The blocks of the page that are commands or programs."""
    text = page.read_text()
    found = list(_BLOCK.finditer(text))
    made = []
    for index, each in enumerate(found):
        if each[1] not in LANGUAGES:
            continue
        marker = _MARKER.search(text[: each.start()])
        behind = found[index + 1] if index + 1 < len(found) else None
        is_output = behind is not None and behind[1] == "text"
        made.append(
            Block(
                language=each[1],
                text=each[2],
                line=text.count("\n", 0, each.start()) + 1,
                marker=marker[1] if marker else "",
                argument=marker[2] or "" if marker else "",
                prints=tuple(behind[2].splitlines()) if behind and is_output else (),
            )
        )
    return made


class Reader:
    """Runs the blocks of pages in a folder, one after the other."""

    def __init__(self, folder: Path, bootstrap: str, addresses: Mapping[str, str]) -> None:
        """`addresses`: what a page writes, and what it stands for here."""
        self._folder = folder
        self._addresses = dict(addresses)
        self._running: list[subprocess.Popen[bytes]] = []
        command = folder / "bin" / "zhumq"
        command.parent.mkdir()
        http = self._addresses.get("127.0.0.1:9080", "127.0.0.1:0")
        command.write_text(_COMMAND.format(python=sys.executable, bootstrap=bootstrap, http=http))
        command.chmod(0o755)
        path = f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}

    def run(self, block: Block, where: str) -> str:
        """Run a block and give what it printed. Raises AssertionError if it fails or prints something else."""
        text = self._here(block.text)
        if block.marker == "file":
            (self._folder / block.argument).write_text(text)
            return ""
        suffix = "py" if block.language == "python" else "sh"
        script = self._folder / f"block-{block.line}.{suffix}"
        script.write_text(text)
        interpreter = [sys.executable] if suffix == "py" else ["bash", "-e"]
        output = script.with_suffix(".out")
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*interpreter, str(script)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,  # so that what it leaves running ends with the page
            )
        self._running.append(process)
        if block.marker == "background":
            self._wait_until_ready(process, output, block.argument or "ready", where)
            return output.read_text()
        code = process.wait(SECONDS_MAX)
        printed = output.read_text()
        assert code == 0, f"{where} failed with code {code}:\n{text}\n{printed}"
        self._check_printed(block, printed, where)
        return printed

    def _here(self, text: str) -> str:
        for written, meant in self._addresses.items():
            text = text.replace(written, meant)
        return text

    def _wait_until_ready(
        self, process: "subprocess.Popen[bytes]", output: Path, word: str, where: str
    ) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while word not in output.read_text():
            assert process.poll() is None, f"{where} ended:\n{output.read_text()}"
            assert time.monotonic() < deadline, f"{where} did not print {word!r}"
            threading.Event().wait(LOOK_AGAIN_SECONDS)

    def _check_printed(self, block: Block, printed: str, where: str) -> None:
        """The lines that the page shows come in this order; others may be between them."""
        behind = iter(printed.splitlines())
        for shown in block.prints:
            pattern = ".*".join(re.escape(each) for each in self._here(shown).split(ANYTHING))
            matches = any(re.fullmatch(pattern, line.rstrip()) for line in behind)
            assert matches, f"{where} does not print {shown!r}, but:\n{printed}"

    def end(self) -> None:
        """End what blocks have left running, with all its children, and give them time to end theirs."""
        while self._running:
            process = self._running.pop()
            deadline = time.monotonic() + END_SECONDS_MAX
            with contextlib.suppress(ProcessLookupError):  # until the group is empty
                os.killpg(process.pid, signal.SIGTERM)
                while time.monotonic() < deadline:
                    process.poll()
                    os.killpg(process.pid, 0)
                    threading.Event().wait(LOOK_AGAIN_SECONDS)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def reader(folder: Path, bootstrap: str, addresses: Mapping[str, str]) -> Iterator[Reader]:
    made = Reader(folder, bootstrap, addresses)
    try:
        yield made
    finally:
        made.end()


def run_page(page: Path, by: Reader) -> tuple[int, int]:
    """Run the blocks of a page. Gives how many ran, and how many have a reason not to."""
    ran = unrun = 0
    for block in blocks(page):
        if block.marker == "not run":
            assert block.argument, f"{page.name}:{block.line} gives no reason"
            unrun += 1
        else:
            by.run(block, f"{page.relative_to(REPOSITORY)}:{block.line}")
            ran += 1
    return ran, unrun
