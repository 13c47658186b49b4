"""What the store makes of the errors of its ZooKeeper client."""

import pytest
from kazoo.exceptions import (  # type: ignore[import-untyped]
    BadArgumentsError,
    BadVersionError,
    MarshallingError,
    SessionExpiredError,
    SystemZookeeperError,
)

from zhumq.cluster.znodes import ConnectionLost, NodeChanged, NodeRefused, SessionOver
from zhumq.cluster.zookeeper_client import translated


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (BadVersionError(), NodeChanged),
        (SessionExpiredError(), SessionOver),
        # A failure inside of a server while it prepares a request: the store tries again.
        (MarshallingError(), ConnectionLost),
        (SystemZookeeperError(), ConnectionLost),
        # An answer out of order, which ends kazoo's thread.
        (RuntimeError("xids do not match"), ConnectionLost),
        (BadArgumentsError(), NodeRefused),
    ],
)
def test_an_error_of_the_ensemble_says_whether_to_try_again(
    theirs: Exception, ours: type[Exception]
) -> None:
    assert type(translated(theirs, "/version")) is ours
