"""Generates the parts of docs/ that repeat the code."""

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "zhumq"

# The rooms in the order of the layers, top first.
ROOMS = (
    "testing",
    "cli",
    "pipelines",
    "broker",
    "spark",
    "push",
    "client",
    "coordinators",
    "replication",
    "storage",
    "cluster",
    "net",
    "groups",
    "share",
    "consensus",
    "metadata",
    "records",
    "protocol",
    "host",
    "model",
)


def captions() -> str:
    """Every module with the first line of its docstring, room by room."""
    found = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())
    missing = sorted(set(found) - set(ROOMS))
    if missing:
        raise SystemExit(f"tools/docs.py does not know the room {missing[0]!r}: add it to ROOMS")
    lines: list[str] = []
    for room in (room for room in ROOMS if room in found):
        modules = sorted((SOURCE / room).rglob("*.py"))
        rows = [(path, caption(path)) for path in modules if path.stat().st_size > 0]
        lines += [f"### {room}", "", "| module | |", "|---|---|"]
        for path, words in rows:
            name = path.relative_to(SOURCE / room).with_suffix("").as_posix()
            lines.append(f"| `{name}` | {words} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def caption(path: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    return docstring.splitlines()[0] if docstring else ""


def apis() -> str:
    """The APIs that protocol/api.py declares, which a broker serves."""
    from zhumq.protocol.api import APIS

    lines = ["| key | API | versions | flexible from |", "|---|---|---|---|"]
    for key, spec in sorted(APIS.items()):
        name = spec.request.__name__.removesuffix("Request")
        flexible = str(spec.flexible_from) if spec.flexible_from <= spec.max_version else "-"
        lines.append(
            f"| {int(key)} | {name} | {spec.min_version}-{spec.max_version} | {flexible} |"
        )
    return "\n".join(lines)


def broker_settings() -> str:
    """The settings of a broker that are not only the default of a topic setting."""
    from zhumq.broker.settings import BROKER_SETTINGS
    from zhumq.model.topic_config import TOPIC_SETTINGS, broker_setting_for

    of_topics = {broker_setting_for(name) for name in TOPIC_SETTINGS.by_name}
    settings = [each for each in BROKER_SETTINGS.by_name.values() if each.name not in of_topics]
    rows = [(f"`{each.name}`", each.default, each.documentation) for each in settings]
    return _table(("setting", "default", "what it does"), rows)


def topic_settings() -> str:
    """The settings of a topic, with the broker setting that gives the default."""
    from zhumq.model.topic_config import TOPIC_SETTINGS, broker_setting_for

    rows = [
        (f"`{each.name}`", f"`{broker_setting_for(each.name)}`", each.default, each.documentation)
        for each in TOPIC_SETTINGS.by_name.values()
    ]
    return _table(("topic setting", "broker setting", "default", "what it does"), rows)


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    lines += [f"| {' | '.join(cell or '(empty)' for cell in row)} |" for row in rows]
    return "\n".join(lines)


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/architecture.md": {"captions": captions},
    "docs/protocol.md": {"apis": apis},
    "docs/operations.md": {
        "broker settings": broker_settings,
        "topic settings": topic_settings,
    },
}


def rewrite(text: str, name: str, content: str) -> str:
    """The text with the part between its two markers replaced."""
    begin, end = f"<!-- {name}: made by `make docs` -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"the markers of the part {name!r} are not there exactly once")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if stale")
    check = parser.parse_args().check
    stale = []
    for file, parts in PARTS.items():
        path = REPOSITORY / file
        before = after = path.read_text()
        for name, make in parts.items():
            after = rewrite(after, name, make())
        if after != before:
            stale.append(file)
            if not check:
                path.write_text(after)
    for file in stale:
        sys.stdout.write(f"{file}: {'is stale, run make docs' if check else 'rewritten'}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
