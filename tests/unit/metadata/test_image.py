"""What a broker reads from the metadata image."""

from dataclasses import replace

import pytest
from leadership_support import cluster, partition

from zhumq.metadata.image import NO_BROKER
from zhumq.model.ids import BrokerId


@pytest.mark.parametrize(
    ("controller", "named"), [(2, 2), (NO_BROKER, 1), (9, 1)], ids=["alive", "none", "gone"]
)
def test_clients_always_get_a_broker_for_administrative_requests(
    controller: int, named: int
) -> None:
    image = replace(cluster(partition([1, 2, 3])), controller_id=BrokerId(controller))
    assert image.admin_broker_id == named


def test_there_is_no_admin_broker_without_a_live_broker() -> None:
    image = replace(cluster(partition([1, 2, 3])), brokers={}, controller_id=NO_BROKER)
    assert image.admin_broker_id == NO_BROKER
