"""`zhumq pipeline upgrade` in its own process."""

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from cli_support import Cli, command, environment
from copy_pipeline import COPY, QUICK_JAVA, WAIT_SECONDS_MAX

from zhumq.cli.main import run


def test_a_batch_has_nothing_to_upgrade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "copy.yml"
    file.write_text(COPY.format(trigger="batch"))
    assert run(["pipeline", "upgrade", str(file), "--state-dir", str(tmp_path)]) == 1
    assert "has trigger: batch, so each run reads everything" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.long
def test_an_upgrade_notes_what_the_next_run_begins_with(cli: Cli, tmp_path: Path) -> None:
    cli.must("topic", "create", "orders")
    file, state = tmp_path / "copy.yml", tmp_path / "state"
    file.write_text(COPY.format(trigger="available-now"))
    done = subprocess.run(
        command("pipeline", "upgrade", str(file), "--json", "--state-dir", str(state)),
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS_MAX,
        env={**environment(cli.bootstrap), "JDK_JAVA_OPTIONS": QUICK_JAVA},
    )
    assert (done.returncode, done.stderr) == (0, "")
    words = "it reads on its own: no other sink can share a read of records"
    assert json.loads(done.stdout) == [{"sink": "copied", "outcome": "begins", "words": words}]
    noted = json.loads((state / "copy" / "checkpoints" / "shapes.json").read_text())
    assert noted["copied"]["state"] == []
