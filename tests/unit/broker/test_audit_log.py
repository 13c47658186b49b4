"""The file of the audit log: private, rotated, and not in the way when the disk refuses it."""

import asyncio
import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from zhumq.broker.audit_log import AuditLog
from zhumq.host.clock import SystemClock
from zhumq.host.rotated_file import RotatedFile
from zhumq.security.audit import AuditEvent

EVENT = AuditEvent(
    principal="User:alice",
    host="127.0.0.1",
    listener="SASL_SSL",
    action="CreateTopics",
    operation="CREATE",
    resource="topic:orders",
    allowed=True,
)


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_written_soon_in_a_file_that_only_the_owner_reads(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "audit.log"
        log = AuditLog(RotatedFile(path=path, bytes_max=1 << 20, files=2), SystemClock())
        log.record(EVENT)
        async with asyncio.timeout(10):
            while not path.exists() or not lines_of(path):
                await asyncio.sleep(0.01)
        log.record(replace(EVENT, allowed=False))
        await log.close()
        assert [line["allowed"] for line in lines_of(path)] == [True, False]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    asyncio.run(scenario())


@pytest.mark.parametrize("files", [1, 3])
def test_the_newest_lines_are_kept_in_so_many_files(tmp_path: Path, files: int) -> None:
    file = RotatedFile(path=tmp_path / "audit.log", bytes_max=100, files=files)
    for number in range(50):
        file.append(b"%039d\n" % number)
    found = sorted(tmp_path.iterdir())
    assert [path.name for path in found] == ["audit.log", "audit.log.1", "audit.log.2"][:files]
    kept = sorted(int(line) for path in found for line in path.read_text().split())
    assert kept == list(range(50))[-len(kept) :]
    assert all(path.stat().st_size <= 100 for path in found)


def test_a_disk_that_refuses_the_log_is_reported_once_and_used_again_when_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        folder = tmp_path / "missing"
        file = RotatedFile(path=folder / "audit.log", bytes_max=1 << 20, files=2)
        for _ in range(2):
            log = AuditLog(file, SystemClock())
            log.record(EVENT)
            await log.close()
            assert log.lines_lost == 1
        log = AuditLog(file, SystemClock())
        log.record(EVENT)
        async with asyncio.timeout(10):
            while not log.lines_lost:
                await asyncio.sleep(0.01)
        folder.mkdir()
        log.record(EVENT)
        await log.close()
        assert len(lines_of(file.path)) == 1

    asyncio.run(scenario())
    texts = [record.getMessage() for record in caplog.records]
    assert sum("cannot write the audit log" in text for text in texts) == 3
    assert "1 lines were lost" in texts[-1]
