"""A log that DeleteRecords has emptied continues at its end, under the same leader and the next one."""

from pathlib import Path

import pytest
from replication_support import nodes, produce, run, until

from zhumq.model.replication_mode import Mode


@pytest.mark.parametrize("mode", list(Mode))
def test_an_emptied_log_continues_at_its_end_under_the_next_leader(
    tmp_path: Path, mode: Mode
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=mode)
            assert await produce(up, "a", "b", "c") == 0
            assert await up.wait_equal() == 3
            leader = await up.wait_leader()
            assert leader.partition().delete_records_before(3) == 3
            await until(
                lambda: all(node.partition().log.log_start_offset == 3 for node in up),
                "the followers have deleted the records too",
            )
            # A follower restarts with an empty log, then the leader stops.
            follower = next(each for each in (1, 2, 3) if each != leader.broker_id)
            await up.stop(follower, clean=False)
            await up.start(follower)
            assert await up.wait_equal() == 3
            await up.stop(leader.broker_id, clean=False)
            assert await produce(up, "d") == 3
            assert await up.wait_equal() == 4
            await up.start(leader.broker_id)
            assert await up.wait_equal() == 4

    run(body())
