"""Generates the parts of the docs that repeat the code, the import contracts and the tree."""

import argparse
import ast
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import reference
from reference import table

if TYPE_CHECKING:
    from zhumq.model.metric import Metric

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "zhumq"

CONTRACTS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
LAYERS = next(each for each in CONTRACTS if each["type"] == "layers")
PURITY = next(each for each in CONTRACTS if "pure" in each["name"])
# What is neither a test nor run as one.
NO_TESTS = {"build", "dist", "docs", "packaging", "src", "tests", "tools"}


def rooms() -> list[tuple[int, str]]:
    """The rooms with the number of their layer, top first."""
    numbered = enumerate((layer.split(" | ") for layer in LAYERS["layers"]), start=1)
    return [(number, room) for number, layer in numbered for room in layer if _is_room(room)]


def _is_room(name: str) -> bool:
    return (SOURCE / name / "__init__.py").exists()


def layers() -> str:
    """The layers of the import contracts, with what each room says of itself; then the other contracts."""
    pure = {name.removeprefix("zhumq.") for name in PURITY["source_modules"]}
    rows = []
    for number, room in rooms():
        says = caption(SOURCE / room / "__init__.py")
        if not says:
            raise SystemExit(
                f"src/zhumq/{room}/__init__.py says nothing of the room in a docstring"
            )
        rows.append((str(number), f"`{room}`", "core" if room in pure else " ", says))
    rules = [f"- {each['name']}." for each in CONTRACTS if each is not LAYERS]
    return "\n".join([table(("layer", "room", "kind", "what it is"), rows), "", *rules])


def captions() -> str:
    """Every module with the first line of its docstring, room by room."""
    lines: list[str] = []
    for _, room in rooms():
        modules = sorted((SOURCE / room).rglob("*.py"))
        lines += [f"### {room}", "", "| module | |", "|---|---|"]
        for path in modules:
            if path.name != "__init__.py":
                name = path.relative_to(SOURCE / room).with_suffix("").as_posix()
                lines.append(f"| `{name}` | {caption(path)} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def test_folders() -> str:
    """The folders of tests, each with the first sentence of its README.md."""
    # Folders without programs are of a broker that was started here, for example by `make run`.
    beside = [
        path
        for path in REPOSITORY.iterdir()
        if path.name not in NO_TESTS and any(path.glob("*.py"))
    ]
    rows = []
    for path in [*sorted((REPOSITORY / "tests").iterdir()), *sorted(beside)]:
        if path.is_dir() and path.name[0] not in "._":
            folder = path.relative_to(REPOSITORY).as_posix()
            if not (path / "README.md").exists():
                raise SystemExit(f"{folder}/README.md does not say what is tested there")
            lines = (path / "README.md").read_text().splitlines()
            text = " ".join(line for line in lines if not line.startswith("#")).strip()
            rows.append((f"`{folder}/`", text.partition(". ")[0].removesuffix(".")))
    return table(("folder", "what"), rows)


def caption(path: Path) -> str:
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    return docstring.splitlines()[0] if docstring else ""


def rights() -> str:
    """What each request needs: the table of rights."""
    from zhumq.broker.rights.table import RULES
    from zhumq.protocol.api import APIS

    rows = []
    for key, rule in sorted(RULES.items()):
        name = APIS[key].request.__name__.removesuffix("Request")
        rows += [
            (name, f"{need.operation.name} {need.type.name}", need.answer) for need in rule.needs
        ] or [(name, "nothing", "-")]
    return table(("request", "right", "without it"), rows)


def openapi() -> str:
    """The description of the REST API, of its route table."""
    from zhumq.web.openapi import document
    from zhumq.web.routes import ROUTES

    return json.dumps(document(ROUTES), indent=1, ensure_ascii=False) + "\n"


def rest_requests() -> str:
    """The requests of the REST API, with what each does."""
    from zhumq.web.endpoint import PREFIX
    from zhumq.web.routes import ROUTES

    rows = [(f"`{each.method} {PREFIX}{each.path}`", each.summary) for each in ROUTES]
    return table(("request", "what it does"), rows)


def metrics() -> str:
    """The metrics of a broker that has just started, and those of a member of a cluster."""
    from zhumq.broker.metrics import cluster_metrics
    from zhumq.cluster.store import SessionState
    from zhumq.metadata.image import ClusterImage
    from zhumq.model.ids import BrokerId
    from zhumq.testing.broker import broker

    alone = BrokerId(0)
    image = ClusterImage(
        version=0, cluster_id="", controller_id=alone, brokers={}, topics={}, topics_by_id={}
    )
    with broker() as running:
        found = [
            *running.app.metrics(),
            *cluster_metrics(alone, image, SessionState.CONNECTED, ()),
        ]
    return metric_table(found)


def pipeline_metrics() -> str:
    """The metrics of pipelines."""
    from zhumq.web.pipeline_metrics import pipeline_metrics

    return metric_table(pipeline_metrics([]))


def metric_table(found: "Iterable[Metric]") -> str:
    rows = [
        (
            f"`{each.name}`",
            each.kind,
            ", ".join(f"`{label}`" for label in each.labels) or "-",
            each.help,
        )
        for each in sorted(found, key=lambda each: each.name)
    ]
    return table(("metric", "kind", "labels", "what it is"), rows)


def decisions() -> str:
    """The list of decisions."""
    pages = sorted((REPOSITORY / "docs" / "decisions").glob("[0-9]*.md"))
    return reference.decisions((page.name, page.read_text()) for page in pages)


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "CONTRIBUTING.md": {"test folders": test_folders},
    "docs/architecture.md": {"layers": layers, "captions": captions},
    "docs/security.md": {"rights": rights},
    "docs/rest.md": {"requests": rest_requests},
    "docs/metrics.md": {"metrics": metrics, "pipeline metrics": pipeline_metrics},
}
# Files of docs/ that are generated as a whole.
FILES: dict[str, Callable[[], str]] = {
    "openapi.json": openapi,
    "decisions/README.md": decisions,
    "reference/settings.md": reference.settings,
    "reference/cli.md": reference.commands,
    "reference/api_keys.md": reference.api_keys,
    "reference/rest.md": reference.rest,
}


def rewrite(text: str, name: str, content: str, made_by: str = "make docs") -> str:
    """The text with the part between its two markers replaced."""
    begin, end = f"<!-- {name}: made by `{made_by}` -->", f"<!-- end of {name} -->"
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
    for file, make in FILES.items():
        path, content = REPOSITORY / "docs" / file, make()
        if not path.exists() or path.read_text() != content:
            stale.append(f"docs/{file}")
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(content)
    for file in stale:
        sys.stdout.write(f"{file}: {'is stale, run make docs' if check else 'rewritten'}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
