"""The workload and the end phase on one broker that is killed, and on one that loses data."""

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from chaos.checker import Verdict, check
from chaos.findings import Findings, Kind
from chaos.history import Action, Phase, Recorder, read_history
from chaos.last_reads import LastReads, read_everything
from chaos.producers import count_epoch_bumps
from chaos.replicas import NotBatches, StoredBatch, compare_replicas, stored_batches
from chaos.workload import TopicPlan, Workload, WorkloadPlan
from chaos.write_gaps import GapMeter, Interruption

from zhumq.testing.process import BrokerProcess

SECONDS_MAX = 60.0
PLAN = WorkloadPlan(
    topics=(TopicPlan(name="t", partitions=2, mode=""),),
    replicas=1,
    producers=2,
    per_second=200,
)

pytestmark = pytest.mark.slow


class OneBroker:
    """A broker with the workload, and the check of its history."""

    def __init__(self, folder: Path) -> None:
        self.history = folder / "history.jsonl"
        self.recorder = Recorder.create(self.history)
        self.broker = BrokerProcess(
            folder / "broker", settings={"offsets.topic.num.partitions": "2"}
        )
        self.broker.start()
        self.workload = Workload(
            PLAN, self.broker.bootstrap, self.recorder, seed=1, log=folder / "producers.log"
        )
        self.workload.create_topics()
        self.workload.start()

    def wait_for_writes(self, since_ms: int) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        names = self.workload.partition_names
        while not self.workload.progress.has_passed(names, since_ms):
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)

    def finish(self) -> tuple[Verdict, LastReads]:
        assert self.workload.stop_writing(SECONDS_MAX) == 0
        last = self.read_last()
        assert self.workload.stop_reading() == []
        assert self.broker.stop() == 0
        self.recorder.close()
        return check(read_history(self.history)), last

    def read_last(self) -> LastReads:
        return read_everything(
            self.broker.bootstrap,
            PLAN.partitions,
            self.recorder,
            self.workload.client_errors,
            only_ends=[("__consumer_offsets", 0)],
            seconds_max=SECONDS_MAX,
        )


@pytest.mark.thorough
def test_a_broker_killed_again_and_again_gives_a_clean_history(tmp_path: Path) -> None:
    one = OneBroker(tmp_path)
    try:
        kills = []
        for _ in range(3):
            one.wait_for_writes(one.recorder.now_ms())
            kills.append(one.recorder.now_ms())
            one.broker.kill()
            one.broker.start()
            one.wait_for_writes(kills[-1])
        verdict, last = one.finish()
    finally:
        one.broker.kill()
    assert verdict.findings == ()
    assert count_epoch_bumps(tmp_path / "producers.log") == 0
    assert "Acquired PID" in (tmp_path / "producers.log").read_text()
    assert verdict.sends_acknowledged > 0
    assert verdict.sends_acknowledged + verdict.sends_failed + verdict.sends_unknown > 100
    assert verdict.values_read == verdict.sends_acknowledged
    assert last.unread == ()
    assert set(last.high_watermarks) == {"t-0", "t-1", "__consumer_offsets-0"}
    everything = frozenset(one.workload.partition_names)
    meter = GapMeter([Interruption(time_ms=each, places=everything) for each in kills])
    assert check(read_history(one.history), [meter]) == verdict
    assert len(meter.gaps.gaps_ms) == 6
    assert meter.gaps.never == 0
    findings = Findings()
    folder = one.broker.data_dir / "t-0"
    assert compare_replicas("t-0", {"a": folder}, last.high_watermarks["t-0"], findings) > 0
    assert list(findings) == []


@pytest.mark.thorough
def test_every_client_of_the_workload_writes_to_the_history(tmp_path: Path) -> None:
    one = OneBroker(tmp_path)
    try:
        one.wait_for_writes(one.recorder.now_ms())
        deadline = time.monotonic() + SECONDS_MAX
        groups = [group for group, _ in PLAN.groups]
        while not one.workload.progress.has_passed(groups, 0):
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        for poller in one.workload.offset_pollers:
            assert poller.poll()
        verdict, _ = one.finish()
    finally:
        one.broker.kill()
    assert verdict.findings == ()
    assert verdict.commits > 0
    seen = Counter(
        (each.action, each.phase) for each in read_history(one.history) if each.phase is Phase.OK
    )
    of_transactions = {
        Action.INIT,
        Action.BEGIN,
        Action.CONSUMED,
        Action.END,
        Action.LAST_STABLE,
    }
    expected = set(Action) - {Action.REVOKE} - of_transactions
    assert {action for action, _ in seen} >= expected


def written(folder: Path) -> list[StoredBatch]:
    """The batches in the log of a broker that may be writing."""
    try:
        return list(stored_batches(folder))
    except NotBatches:
        return []


@pytest.mark.thorough
def test_a_broker_that_loses_acknowledged_data_is_a_finding(tmp_path: Path) -> None:
    one = OneBroker(tmp_path)
    folder = one.broker.data_dir / "t-0"
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while max([batch.last_offset for batch in written(folder)], default=0) < 50:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        # A later send is acknowledged, so all of these are.
        one.wait_for_writes(one.recorder.now_ms())
        one.broker.kill()
        batches = written(folder)
        (log,) = folder.glob("*.log")
        kept = sum(len(batch.data) for batch in batches[: len(batches) // 2])
        with open(log, "r+b") as file:
            file.truncate(kept)
        one.broker.start()
        # The client detects the loss as well.
        while not one.workload.client_errors.fatal:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        one.workload.stop_writing(1.0)
        one.read_last()
        assert one.workload.stop_reading() == []
        one.recorder.close()
    finally:
        one.broker.kill()
    kinds = {finding.kind for finding in check(read_history(one.history)).findings}
    assert kinds & {Kind.LOST_WRITE, Kind.UNSEEN, Kind.INCONSISTENT_OFFSETS}
    assert any("OUT_OF_ORDER" in what for what in one.workload.client_errors.fatal)
