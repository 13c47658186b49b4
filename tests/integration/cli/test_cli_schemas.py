"""`zhumq schema`: schemas from files into the registry and back, and what it refuses."""

import json
from pathlib import Path

import pytest
from cli_support import Cli

ONE = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
BROKEN = {"type": "record", "name": "R", "fields": [{"name": "y", "type": "int"}]}


@pytest.mark.thorough
def test_schemas_are_registered_shown_checked_and_deleted(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    one, broken, proto = tmp_path / "one.avsc", tmp_path / "broken.avsc", tmp_path / "m.proto"
    one.write_text(json.dumps(ONE))
    broken.write_text(json.dumps(BROKEN))
    proto.write_text('syntax = "proto3"; message M { string a = 1; }')
    made = cli.must("schema", "register", topic, str(one), "--json").document
    assert (made["subject"], made["version"], made["type"]) == (topic, 1, "AVRO")
    again = cli.must("schema", "register", topic, str(one), "--json").document
    assert again == made
    cli.must("schema", "register", f"{topic}-p", str(proto))
    rows = cli.must("schema", "list", "--prefix", topic, "--json").document
    assert [(row["subject"], row["type"], row["versions"]) for row in rows] == [
        (topic, "AVRO", [1]),
        (f"{topic}-p", "PROTOBUF", [1]),
    ]
    assert cli.must("schema", "list").lines[0].split()[0] == "SUBJECT"
    assert json.loads(cli.must("schema", "show", topic).out) == ONE
    assert "message M {" in cli.must("schema", "show", f"{topic}-p", "--version", "1").out.decode()
    cli.must("schema", "check", topic, str(one))
    refused = cli.run("schema", "check", topic, str(broken))
    assert refused.code == 1
    assert "at /y" in refused.err
    cli.must("schema", "delete", topic, "--version", "1")
    cli.must("schema", "delete", topic, "--permanent")
    assert topic not in [row["subject"] for row in cli.must("schema", "list", "--json").document]


@pytest.mark.thorough
def test_what_is_refused_is_one_line(cli: Cli, topic: str, tmp_path: Path) -> None:
    (tmp_path / "one.avsc").write_text("{")
    (tmp_path / "one.txt").write_text("{}")
    for words, text in (
        (("show", topic), "there is no subject"),
        (("delete", topic), "there is no subject"),
        (("register", topic, str(tmp_path / "one.avsc")), "no JSON"),
        (("register", topic, str(tmp_path / "one.txt")), "--type"),
        (("register", topic, str(tmp_path / "missing.avsc")), "cannot read"),
        (
            ("register", topic, str(tmp_path / "one.avsc"), "--reference", "x"),
            "NAME=SUBJECT:VERSION",
        ),
    ):
        done = cli.run("schema", *words)
        assert done.code != 0
        assert text in done.err
        assert done.err.count("\n") == 1
