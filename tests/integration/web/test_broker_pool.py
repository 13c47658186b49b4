"""The connections of the web process: those that requests still use when it ends are closed, too."""

import gc
import warnings

from zhumq.client.security import PLAINTEXT
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest
from zhumq.testing.broker import broker
from zhumq.web.brokers import BrokerPool


def test_a_connection_that_comes_back_after_the_end_is_closed() -> None:
    with broker() as running:
        pool = BrokerPool(running.bootstrap)
        with pool.lend(PLAINTEXT) as brokers:
            brokers.connection.request(ApiKey.METADATA, MetadataRequest(topics=[]))
            pool.close()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            del brokers, pool
            gc.collect()
        assert [str(each.message) for each in seen] == []
