"""Messages sent by the command line survive a kill of the broker's process."""

from pathlib import Path

import pytest
from cli_support import SECONDS_MAX, SOURCE, Cli, begin

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


@pytest.mark.thorough
def test_a_reader_continues_after_a_broker_restart_and_ends_when_the_broker_stays_down(
    tmp_path: Path,
) -> None:
    environment = {"PYTHONPATH": str(SOURCE)}
    with broker_process(tmp_path / "data", environment=environment) as process:
        Cli(process.bootstrap).must("produce", "t", lines=["before"])
        with begin(process.bootstrap, "consume", "t") as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"before\n"
            process.kill()
            process.start()
            Cli(process.bootstrap).must("produce", "t", lines=["after"])
            assert reader.stdout.readline() == b"after\n"
            process.kill()
            out, err = reader.communicate(timeout=SECONDS_MAX)
    assert (reader.returncode, out) == (1, b"")
    assert err.startswith(b"zhumq: no broker at ")
    assert err.count(b"\n") == 1
