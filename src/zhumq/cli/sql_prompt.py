"""The prompt of `zhumq sql`: several lines up to a semicolon, completion of tables and columns, history."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.sql_text import split_statements
from zhumq.sql.attached import TopicTables

HISTORY_BYTES_MAX: Final = 1024 * 1024
COMPLETIONS_MAX: Final = 200
KEYWORDS: Final = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON",
    "USING", "AND", "OR", "NOT", "AS", "DISTINCT", "UNION ALL", "WITH", "CASE", "WHEN", "THEN", "ELSE",
    "END", "BETWEEN", "IN", "LIKE", "IS NULL", "IS NOT NULL", "DESC", "INTERVAL", "now()", "count(*)",
    "sum(", "avg(", "min(", "max(", "CAST(", "date_trunc(", "timestamp", "offset", "partition", "key",
    "SHOW TABLES", "DESCRIBE", "EXPLAIN",
)  # fmt: skip
HELP: Final = """\
A statement ends with a semicolon. Tab completes, the arrow keys find earlier ones, Ctrl-C drops a line.
  SHOW TABLES;        the topics, their schemas and archives
  DESCRIBE orders;    the columns of a table
  \\f chart            the format of the results: table, json, csv, chart
  \\q                  the end, as Ctrl-D is
"""
_WORD: Final = re.compile(r"[\w.`-]+$|\\\w*$")


class Shell(Protocol):
    """What runs the statements."""

    tables: TopicTables

    def execute(self, statement: str) -> None: ...

    def use_format(self, name: str) -> None: ...


class SqlCompleter(Completer):
    """Completes keywords, topics, and the columns of the topics that the statement names."""

    def __init__(self, tables: TopicTables) -> None:
        self._tables = tables
        self._columns: dict[str, list[str]] = {}

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        del complete_event
        match = _WORD.search(document.text_before_cursor)
        word = match[0] if match is not None else ""
        if not word:
            return
        start = word.strip("`").lower()
        shown = 0
        for name in self._names(document.text):
            if name.strip("`").lower().startswith(start) and shown < COMPLETIONS_MAX:
                shown += 1
                yield Completion(name, start_position=-len(word))

    def _names(self, text: str) -> Iterator[str]:
        seen: set[str] = set()
        topics = self._tables.known()
        for topic in topics:
            if re.search(rf"(?<![\w.]){re.escape(topic)}(?![\w.])", text):
                seen.update(self._columns.get(topic) or self._look_up(topic))
        yield from sorted(seen)
        for topic in topics:
            yield topic if re.fullmatch(r"[A-Za-z_]\w*", topic) else f"`{topic}`"
        yield from KEYWORDS

    def _look_up(self, topic: str) -> list[str]:
        names: list[str] = []
        # Without the columns of a table that cannot be read, the rest is still completed.
        with suppress(ZhumqError):
            names = self._tables.frame(topic).columns
        self._columns[topic] = names
        return names


def prompt(
    shell: Shell,
    *,
    history: Path | None = None,
    input_: Input | None = None,
    output: Output | None = None,
) -> None:
    """Run the statements that are typed, until the end. An error is printed, and the prompt goes on."""
    shell.tables.tables()
    session: PromptSession[str] = PromptSession(
        history=_history(history or history_file()),
        completer=SqlCompleter(shell.tables),
        complete_while_typing=False,
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation="  ... ",
        input=input_,
        output=output,
    )
    sys.stdout.write("\\h shows help, \\q ends\n")
    while True:
        try:
            text = session.prompt("zhumq> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text in ("\\q", "exit", "quit", "exit;", "quit;"):
            return
        try:
            _run(shell, text)
        except KeyboardInterrupt:
            sys.stderr.write("zhumq: stopped\n")
        except ZhumqError as error:
            sys.stderr.write(f"zhumq: {' '.join(str(error).split())}\n")


def history_file() -> Path:
    """The file of earlier statements, in the folder that XDG has for the state of programs."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "zhumq" / "sql_history"


def _run(shell: Shell, text: str) -> None:
    if text in ("\\h", "\\?", "help", "help;"):
        sys.stdout.write(HELP)
    elif text.startswith("\\f"):
        shell.use_format(text.removeprefix("\\f").strip())
    else:
        for statement in split_statements(text):
            shell.execute(statement)


def _history(path: Path) -> FileHistory:
    """The history, of which the older half is dropped once it is large."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > HISTORY_BYTES_MAX:
        raw = path.read_bytes()[-HISTORY_BYTES_MAX // 2 :]
        # An entry begins with an empty line and its time.
        path.write_bytes(raw[raw.find(b"\n# ") :])
    path.touch(mode=0o600)
    return FileHistory(str(path))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Run a statement that is complete; otherwise begin a line."""
        buffer = event.current_buffer
        text = buffer.text.strip()
        words = ("", "exit", "quit", "help")
        if text in words or text.startswith("\\") or text.endswith(";"):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
