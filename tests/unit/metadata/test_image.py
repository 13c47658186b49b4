"""What a broker reads from the picture of the cluster."""

from dataclasses import replace

import pytest
from leadership_support import NOBODY, cluster, partition

from zhumq.model.ids import BrokerId


@pytest.mark.parametrize(
    ("controller", "named"), [(2, 2), (NOBODY, 1), (9, 1)], ids=["alive", "none", "gone"]
)
def test_clients_are_always_told_of_a_broker_for_administrative_requests(
    controller: int, named: int
) -> None:
    image = replace(cluster(partition([1, 2, 3])), controller_id=BrokerId(controller))
    assert image.admin_broker_id == named


def test_nobody_is_named_where_nobody_is_alive() -> None:
    image = replace(cluster(partition([1, 2, 3])), brokers={}, controller_id=NOBODY)
    assert image.admin_broker_id == NOBODY
