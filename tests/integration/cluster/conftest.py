from collections.abc import Iterator

import pytest

from zhumq.testing.cluster import ClusterProcesses, cluster_processes


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[ClusterProcesses]:
    """Three real brokers and a real ZooKeeper for all tests of a file."""
    with cluster_processes(nodes=3) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: ClusterProcesses) -> ClusterProcesses:
    """The cluster with all its brokers up, whatever an earlier test did to them."""
    dead = [each for each, broker in shared_cluster.brokers.items() if not broker.running]
    shared_cluster.restart(*dead)
    shared_cluster.wait_for_brokers(shared_cluster.brokers)
    return shared_cluster
