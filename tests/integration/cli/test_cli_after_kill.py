"""Messages sent by the command line, after the death of the broker's process."""

from pathlib import Path

import pytest
from cli_support import SOURCE, Cli

from zhumq.testing.process import broker_process


@pytest.mark.parametrize("acks", ["1", "all"])
def test_what_was_acknowledged_outlives_the_process(tmp_path: Path, acks: str) -> None:
    lines = [f"line {number}" for number in range(1_000)]
    environment = {"PYTHONPATH": str(SOURCE)}
    with broker_process(tmp_path / "data", environment=environment) as process:
        Cli(process.bootstrap).must("produce", "t", "--acks", acks, lines=lines)
        process.kill()
        process.start()
        assert Cli(process.bootstrap).must("consume", "t", "--until-end").lines == lines
