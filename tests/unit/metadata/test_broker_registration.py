"""The registration of a broker: its JSON form, also that of earlier releases, and who reaches it."""

import json

from zhumq.metadata.changes import BrokerRegistered, change_from_json, change_to_json
from zhumq.metadata.image import Broker, Endpoint
from zhumq.model.ids import BrokerId

BROKER = Broker(
    broker_id=BrokerId(1),
    host="inside",
    port=1,
    rack="r",
    epoch=7,
    replica_host="peers",
    replica_port=3,
    replica_tls=True,
    push_address="push:4",
    endpoints={
        "PLAINTEXT": Endpoint(host="inside", port=1),
        "SSL": Endpoint(host="outside", port=2),
    },
)


def test_a_registration_survives_its_json_form() -> None:
    change = BrokerRegistered(broker=BROKER)
    assert change_from_json(json.loads(json.dumps(change_to_json(change)))) == change


def test_a_registration_of_an_earlier_release_has_one_plaintext_listener_and_no_tls() -> None:
    data = change_to_json(BrokerRegistered(broker=BROKER))
    for name in ("endpoints", "replica_tls", "push_address"):
        del data[name]
    change = change_from_json(data)
    assert isinstance(change, BrokerRegistered)
    assert change.broker.endpoint("PLAINTEXT") == Endpoint(host="inside", port=1)
    assert change.broker.endpoint("SSL") is None
    assert not change.broker.replica_tls


def test_a_broker_is_reached_by_the_listeners_that_it_has() -> None:
    assert BROKER.endpoint("SSL") == Endpoint(host="outside", port=2)
    assert BROKER.endpoint("OTHER") is None
