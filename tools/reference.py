"""Makes the pages of docs/reference: settings, commands, API keys and REST requests, as the code declares them."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

MADE: Final = "<!-- made by `make docs`: change the code, not this page -->"
_UNBOUNDED: Final = 2**31 - 1  # maximums from here on are those of the type


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    lines += [f"| {' | '.join(cell or '(empty)' for cell in row)} |" for row in rows]
    return "\n".join(lines)


def settings() -> str:
    """Every setting of brokers and topics."""
    from zhumq.broker.settings import BROKER_SETTINGS, COARSER_NAMES
    from zhumq.model.topic_config import TOPIC_SETTINGS, broker_setting_for

    of_topics = {broker_setting_for(name) for name in TOPIC_SETTINGS.by_name}
    broker_rows = [
        (f"`{each.name}`", each.default, _takes(each), _changes(each), each.documentation)
        for each in BROKER_SETTINGS.by_name.values()
        if each.name not in of_topics
    ]
    topic_rows = [
        (
            f"`{each.name}`",
            f"`{broker_setting_for(each.name)}`",
            each.default,
            _takes(each),
            each.documentation,
        )
        for each in TOPIC_SETTINGS.by_name.values()
    ]
    coarser = ", ".join(f"`{name}`" for name in COARSER_NAMES)
    return f"""# Settings

{MADE}

Settings have Kafka's names where Kafka has them.

## Settings of a broker

`zhumq start --set NAME=VALUE`, or a line in the file of `--config`. "Running" says whether a broker takes a new value while it runs
(`kafka-configs --entity-type brokers`, and any other Kafka tool): by listener means that `listener.name.NAME.` before the name sets it for one listener.
The broker also accepts {coarser}; the finer names win when both are given.

{table(("setting", "default", "takes", "running", "what it does"), broker_rows)}

## Settings of a topic

`zhumq topic create NAME --set KEY=VALUE`, or `zhumq topic alter`. Where a topic does not set one, the broker setting applies.

{table(("topic setting", "broker setting", "default", "takes", "what it does"), topic_rows)}
"""


def _takes(setting: Any) -> str:
    kind = setting.type.name.lower()
    if setting.allowed:
        choices = ", ".join(f"`{each}`" if each else "(empty)" for each in setting.allowed)
        return f"{kind}: {choices}" if kind == "list" else choices
    least, most = setting.minimum, setting.maximum
    if most is not None and most >= _UNBOUNDED:
        most = None
    if least is not None and most is not None:
        return f"{kind}, {least:g} to {most:g}"
    if least is not None:
        return f"{kind}, from {least:g}"
    return f"{kind}, to {most:g}" if most is not None else str(kind)


def _changes(setting: Any) -> str:
    words = ["yes" if setting.changes_while_running else "no"]
    if setting.is_per_listener:
        words.append("by listener")
    return ", ".join(words)


def commands() -> str:
    """Every command with its arguments and options."""
    import typer

    from zhumq.cli.main import COMMANDS, app

    root = typer.main.get_command(app)
    parts = [
        "# Commands",
        "",
        MADE,
        "",
        (
            "`zhumq COMMAND --help` prints the same. An error is one line on stderr that names the fix. Exit codes: 0 done, 1 failed, 2 wrong"
            " usage, 130 ended by Ctrl-C."
        ),
        "",
    ]
    for name in COMMANDS:
        parts.append(f"## zhumq {name}\n")
        command = root.get_command(None, name)  # type: ignore[attr-defined]
        for path, leaf in _leaves(f"zhumq {name}", command):
            if path != f"zhumq {name}":
                parts.append(f"### {path}\n")
            parts += [_help(leaf), "", *_parameters(leaf)]
    return "\n".join(parts).rstrip() + "\n"


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        yield from _leaves(f"{path} {name}", child)


def _help(command: Any) -> str:
    text = re.sub(r"\[/?[a-z]+\]", "", command.help or "")  # rich's markup
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _parameters(command: Any) -> list[str]:
    rows = []
    for each in command.params:
        if each.name in ("help", "install_completion", "show_completion"):
            continue
        if each.param_type_name == "argument":
            name = f"`{each.metavar or each.name.upper()}`" + (
                "" if each.required else " (may be left out)"
            )
        else:
            name = ", ".join(f"`{option}`" for option in [*each.opts, *each.secondary_opts])
            if not each.is_flag and each.metavar:
                name += f" {each.metavar}"
        default = each.default
        shown = "-" if default in (None, "", (), [], False) or callable(default) else f"`{default}`"
        text = " ".join((getattr(each, "help", "") or "").split())
        rows.append((name.replace("|", "\\|"), shown, text.replace("|", "\\|") or "-"))
    return [table(("argument or option", "default", "what it does"), rows), ""] if rows else []


def api_keys() -> str:
    """Every API of the Kafka protocol that a broker serves, with the rights it asks for."""
    from zhumq.broker.rights.table import RULES
    from zhumq.protocol.api import APIS

    rows = []
    for key, spec in sorted(APIS.items()):
        rule = RULES.get(key)
        rights = [f"{need.operation.name} {need.type.name}" for need in rule.needs] if rule else []
        rows.append(
            (
                str(int(key)),
                spec.request.__name__.removesuffix("Request"),
                f"{spec.min_version}-{spec.max_version}",
                str(spec.flexible_from) if spec.flexible_from <= spec.max_version else "-",
                ", ".join(dict.fromkeys(rights)) or "-",
            )
        )
    return f"""# API keys

{MADE}

What a broker serves. It lists the keys below 10,000 in its answer to ApiVersions; those from 10,000 on are zhumq's own.
The rights are those that a client may need, according to what it asks for: [security](../security.md) has each in detail. How the protocol
is declared and tested: [the Kafka protocol in zhumq](../protocol.md).

{table(("key", "API", "versions", "flexible from", "rights"), rows)}
"""


def rest() -> str:
    """Every request of the REST API, with its parameters, body and answer."""
    from zhumq.web.openapi import document
    from zhumq.web.routes import ROUTES

    described = document(ROUTES)
    schemas = described["components"]["schemas"]
    by_tag: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation.get("tags", ["events"])[0], []).append(
                _request(f"{method.upper()} {path}", operation)
            )
    parts = [
        "# REST requests",
        "",
        MADE,
        "",
        "The same as [openapi.json](../openapi.json), for reading. How callers authenticate, pages, errors and examples: [the REST API](../rest.md).",
        "",
    ]
    for tag, requests in by_tag.items():
        parts += [f"## Requests: {tag}", "", *requests]
    parts += ["## Values", "", "What bodies and answers are made of.", ""]
    for name, schema in sorted(schemas.items(), key=lambda item: _short(item[0])):
        parts += [f"### {_short(name)}", "", *_schema(schema)]
    return "\n".join(parts).rstrip() + "\n"


def _request(title: str, operation: dict[str, Any]) -> str:
    lines = [f"### {title}", "", operation.get("summary", "")]
    if operation.get("description"):
        lines += ["", operation["description"]]
    rows = [
        (f"`{each['name']}`", each["in"], _type(each["schema"]), each.get("description", "-"))
        for each in operation.get("parameters", ())
    ]
    if rows:
        lines += ["", table(("parameter", "in", "type", "what it is"), rows)]
    body = _content(operation.get("requestBody", {}))
    answers = {
        status: _content(answer)
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    }
    says = [f"Body: {body}."] if body else []
    says += [f"Answer: {status}, {content or 'nothing'}." for status, content in answers.items()]
    return "\n".join([*lines, "", " ".join(says), ""])


def _content(of: dict[str, Any]) -> str:
    kinds = [each["schema"] for each in of.get("content", {}).values() if "schema" in each]
    return _type(kinds[0]) if kinds else ""


def _short(name: str) -> str:
    """The name of a value: of a name with its module, the last part of that too, as such names are not unique."""
    name = name.rpartition("/")[2]
    if generic := re.fullmatch(r"(\w+?)_(\w+)_", name):
        return f"{generic[1]} of {generic[2]}"
    *modules, last = name.split(".")
    return f"{modules[-1]} {last}" if modules else last


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words; values that have a name are linked."""
    if "$ref" in schema:
        name = _short(schema["$ref"])
        return f"[{name}](#{name.lower().replace(' ', '-')})"
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    words = str(schema.get("type", "any value"))
    if words == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    if schema.get("default") not in (None, "", [], {}):
        words += f", `{json.dumps(schema['default'])}` if not given"
    return words


def _schema(schema: dict[str, Any]) -> list[str]:
    lines = [schema["description"], ""] if schema.get("description") else []
    fields = schema.get("properties", {})
    if not fields:
        return [*lines, _type(schema) + ".", ""]
    needed = schema.get("required", ())
    rows = [
        (f"`{name}`", _type(each), "yes" if name in needed else "no", each.get("description", "-"))
        for name, each in fields.items()
    ]
    return [*lines, table(("field", "type", "always there", "what it is"), rows), ""]


def decisions(texts: Iterable[tuple[str, str]]) -> str:
    """The list of decisions, of the names of their files and their texts."""
    rows = []
    for name, text in texts:
        number, _, title = text.splitlines()[0].removeprefix("# ").partition(" ")
        rows.append((number, f"[{title}]({name})"))
    return f"""# Decisions

{MADE}

Why things are as they are: context, decision, consequences, and what was rejected. A decision that another replaces says so.

{table(("number", "decision"), rows)}
"""
