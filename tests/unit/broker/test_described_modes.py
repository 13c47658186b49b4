"""DescribeConfigs shows the current mode of each partition beside the configured one."""

from dataclasses import dataclass, field, replace

import pytest

from zhumq.admin.topics import partition_modes
from zhumq.broker.config import BrokerConfig
from zhumq.broker.config_entries import ConfigEntries
from zhumq.broker.dispatch import RequestContext
from zhumq.broker.handlers.configs import ConfigsHandler
from zhumq.metadata.image import ClusterImage, PartitionState, Topic
from zhumq.model.ids import ZERO_UUID, BrokerId, LeaderEpoch
from zhumq.model.replication_mode import MODES_SETTING, Mode
from zhumq.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)

RAFT = PartitionState(
    replicas=(BrokerId(1),), leader=BrokerId(1), leader_epoch=LeaderEpoch(0), in_sync=(BrokerId(1),)
)
CHANGING = Topic(
    name="t",
    topic_id=ZERO_UUID,
    partitions=(RAFT, replace(RAFT, mode=Mode.FETCH), RAFT),
    settings={"replication.mode": "fetch"},
)


@dataclass
class FixedStore:
    """A store that never changes."""

    image: ClusterImage = field(
        default_factory=lambda: ClusterImage(
            version=1,
            cluster_id="c",
            controller_id=BrokerId(1),
            brokers={},
            topics={"t": CHANGING},
            topics_by_id={ZERO_UUID: CHANGING},
        )
    )


def describe(
    *, has_modes: bool, names: list[str] | None = None
) -> dict[str, DescribeConfigsResourceResult]:
    entries = ConfigEntries(BrokerConfig.load().settings)
    handler = ConfigsHandler(BrokerId(1), FixedStore(), None, entries, has_modes=has_modes)
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=names)
    context: RequestContext = None  # type: ignore[assignment]
    (result,) = handler.describe_configs(
        context, DescribeConfigsRequest(resources=[resource])
    ).results
    assert result.error_code == 0
    return {each.name: each for each in result.configs}


def values(found: dict[str, DescribeConfigsResourceResult]) -> dict[str, str | None]:
    return {name: each.value for name, each in found.items()}


def test_a_partition_that_has_not_changed_yet_is_described_in_the_mode_it_is_in() -> None:
    found = describe(has_modes=True)
    assert found["replication.mode"].value == "fetch"
    assert found[MODES_SETTING].value == "0:raft,1:fetch,2:raft"
    assert found[MODES_SETTING].read_only
    assert partition_modes(values(found), [0, 1, 2]) == {
        0: ("raft", "fetch"),
        1: ("fetch", "fetch"),
        2: ("raft", "fetch"),
    }


def test_a_single_node_has_no_modes() -> None:
    found = describe(has_modes=False)
    assert MODES_SETTING not in found
    assert partition_modes(values(found), [0]) == {0: (None, None)}


@pytest.mark.parametrize(("name", "count"), [(MODES_SETTING, 1), ("retention.ms", 1), ("no", 0)])
def test_modes_are_a_setting_that_can_be_asked_for_by_name(name: str, count: int) -> None:
    assert len(describe(has_modes=True, names=[name])) == count
