"""The examples of docs/schemas.md, run as they are written against a broker and its registry."""

import re
import subprocess
from pathlib import Path

from zhumq.testing.broker import broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "schemas.md").read_text()
WRITTEN_URL = "http://127.0.0.1:8080"
SECONDS_MAX = 60.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_every_example_of_the_document_runs() -> None:
    shell, python = blocks("bash"), blocks("python")
    assert shell
    assert python
    with broker() as running, rest_api(WebConfig(bootstrap=running.bootstrap)) as url:
        for block in shell:
            assert WRITTEN_URL in block
            done = subprocess.run(
                ["bash", "-e", "-c", block.replace(WRITTEN_URL, url)],
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert '"is_compatible":false' in done.stdout
        for block in python:
            assert WRITTEN_URL in block
            exec(compile(block.replace(WRITTEN_URL, url), "docs/schemas.md", "exec"), {})
