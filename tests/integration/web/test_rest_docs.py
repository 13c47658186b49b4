"""The examples of docs/rest.md, run as they are written against a process of `zhumq web`."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zhumq.testing.broker import broker

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "rest.md"
BLOCKS = re.findall(r"```bash\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
WRITTEN_URL = "http://127.0.0.1:8080"
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broker() as running:
        command = [sys.executable, "-m", "zhumq", "web", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [*command, "--bootstrap", running.bootstrap], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None  # as it was asked for
            ready = re.match(r"zhumq web ready url=(\S+) ", process.stdout.readline())
            assert ready is not None
            yield ready.group(1)
        finally:
            process.terminate()
            code = process.wait(SECONDS_MAX)
            if process.stdout is not None:
                process.stdout.close()
        assert code == 0


def test_every_example_of_the_document_runs(url: str) -> None:
    assert len(BLOCKS) >= 2
    for block in BLOCKS:
        assert WRITTEN_URL in block
        done = subprocess.run(
            ["bash", "-e", "-c", block.replace(WRITTEN_URL, url)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout
    events = done.stdout
    assert 'data: {"kind":"cluster","change":"connected"' in events
