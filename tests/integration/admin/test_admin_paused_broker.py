"""A broker that stops answering: requests to a coordinator fail with an error, and go on when it is back."""

import threading
from pathlib import Path

import pytest

from zhumq.admin import connection as connection_module
from zhumq.admin import groups
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Unavailable
from zhumq.admin.groups import committed_offsets
from zhumq.admin.offsets import Position
from zhumq.admin.topics import create_topic
from zhumq.testing.process import broker_process

GROUP = "readers"


@pytest.mark.thorough
def test_a_group_is_unavailable_while_its_coordinator_is_paused_and_found_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka's admin client aborts the process when a request to a coordinator times out."""
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT_SECONDS", 0.5)
    with (
        broker_process(tmp_path) as broker,
        ClusterConnection(broker.bootstrap, retry_seconds=1.0) as hurried,
        ClusterConnection(broker.bootstrap) as patient,
    ):
        create_topic(patient, "orders")
        groups.reset_offsets(patient, GROUP, "orders", Position(offset=0))
        broker.pause()
        for _ in range(2):
            with pytest.raises(Unavailable, match="did not answer"):
                committed_offsets(hurried, GROUP)
        with pytest.raises(Unavailable):
            groups.delete_group(hurried, GROUP)
        timer = threading.Timer(1.0, broker.resume)
        timer.start()
        assert committed_offsets(patient, GROUP) == {("orders", 0): 0}
        timer.join()
        groups.delete_group(patient, GROUP)
        assert committed_offsets(patient, GROUP) == {}
