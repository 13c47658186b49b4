from collections.abc import Mapping

import pytest

from zhumq.model.errors import SettingInvalid
from zhumq.model.secret_references import (
    REFERENCED_BYTES_MAX,
    ReferencedFile,
    resolve_references,
)

SECRET = "s3cr3t-hunter2"


class FakeMachine:
    """An environment and files in memory."""

    def __init__(
        self,
        variables: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        open_files: tuple[str, ...] = (),
    ) -> None:
        self._variables = variables or {}
        self._files = files or {}
        self._open_files = open_files
        self.reads: list[str] = []

    def variable(self, name: str) -> str | None:
        return self._variables.get(name)

    def file(self, path: str) -> ReferencedFile:
        self.reads.append(path)
        if path not in self._files:
            raise FileNotFoundError(2, "No such file or directory")
        return ReferencedFile(
            content=self._files[path][: REFERENCED_BYTES_MAX + 1],
            is_open_to_others=path in self._open_files,
        )


def resolve(text: str, machine: FakeMachine) -> str:
    return resolve_references({"a.password": text}, machine).texts["a.password"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("$1 ${} ${x} $", "$1 ${} ${x} $"),
        ("${env:NAME}", "from-env"),
        ("${env:EMPTY}", ""),
        ("${file:/one}", "line"),
        ("${file:/crlf}", "line"),
        ("${file:/two-newlines}", "line\n"),
        ("${file:/none}", "line"),
        ("${file:/properties:key}", "of-key"),
        ("${file:/properties:a:b}", "of-a:b"),
        ("-${env:NAME}-${file:/one}-", "-from-env-line-"),
        ("${env:NESTED}", "${env:NAME}"),
    ],
)
def test_references_are_replaced_by_what_they_lead_to(text: str, expected: str) -> None:
    machine = FakeMachine(
        {"NAME": "from-env", "EMPTY": "", "NESTED": "${env:NAME}"},
        {
            "/one": b"line\n",
            "/crlf": b"line\r\n",
            "/two-newlines": b"line\n\n",
            "/none": b"line",
            "/properties": b"key=of-key\na\\:b=of-a:b\n",
        },
    )
    assert resolve(text, machine) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x${env:MISSING}", "environment variable MISSING is not set"),
        ("x${file:/missing}", "cannot read /missing: No such file or directory"),
        ("x${file:/missing:key}", "cannot read /missing: No such file or directory"),
        ("x${file:/large}", "/large has more than 64 KiB"),
        ("x${file:/binary}", "/binary is not text in UTF-8"),
        ("x${file:/properties:nokey}", "no key 'nokey'"),
        ("x${file:/broken:key}", "not a properties file"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_with_its_setting_and_never_its_content(
    text: str, reason: str
) -> None:
    content = SECRET.encode()
    machine = FakeMachine(
        {"OTHER": SECRET},
        {
            "/large": content * REFERENCED_BYTES_MAX,
            "/binary": content + b"\xff",
            "/properties": b"key=" + content,
            "/broken": b"key=" + content + b"\\u1",
        },
    )
    with pytest.raises(SettingInvalid) as refused:
        resolve(SECRET + text, machine)
    assert str(refused.value).startswith(f"a.password={text[1:]} is not usable: ")
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_provider_is_refused_without_the_text_which_may_be_a_password() -> None:
    with pytest.raises(SettingInvalid, match=r"^a.password has a reference") as refused:
        resolve(f"${{vault:{SECRET}}}", FakeMachine())
    assert SECRET not in str(refused.value)
    assert "vault" not in str(refused.value)


def test_a_file_of_exactly_the_limit_is_accepted() -> None:
    machine = FakeMachine(files={"/file": b"x" * REFERENCED_BYTES_MAX})
    assert len(resolve("${file:/file}", machine)) == REFERENCED_BYTES_MAX


def test_a_file_is_read_once_and_warned_of_once() -> None:
    machine = FakeMachine(
        files={"/open": b"a=1\nb=2", "/closed": b"c=3"}, open_files=("/open", "/other")
    )
    resolved = resolve_references(
        {"first": "${file:/open:a}", "second": "${file:/open:b}", "third": "${file:/closed:c}"},
        machine,
    )
    assert resolved.texts == {"first": "1", "second": "2", "third": "3"}
    assert machine.reads == ["/open", "/closed"]
    assert len(resolved.warnings) == 1
    assert "/open, which first refers to" in resolved.warnings[0]


def test_nothing_that_holds_a_secret_shows_it() -> None:
    machine = FakeMachine(files={"/file": SECRET.encode()})
    resolved = resolve_references({"a": "${file:/file}", "b": "plain"}, machine)
    assert SECRET not in f"{resolved!r} {resolved} {machine.file('/file')!r}"
    assert resolved.given == {"a": "${file:/file}"}
