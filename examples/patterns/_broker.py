"""What all examples share: a broker to run on, and topics of their own.

Without `--bootstrap HOST:PORT` an example starts a broker in its own process, in a temporary folder.
"""

import argparse
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import zhumq
from zhumq.testing.broker import broker

parser = argparse.ArgumentParser(description="An example of docs/patterns.")
parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker")


@contextmanager
def broker_address(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of the broker to use; `settings` are for the one that is started."""
    # The client logs the failures that the examples provoke.
    logging.getLogger("zhumq").setLevel(logging.ERROR)
    bootstrap = parser.parse_args().bootstrap
    if bootstrap:
        yield bootstrap
        return
    with broker(settings=settings) as running:
        yield running.bootstrap


def new_topic(bootstrap: str, name: str, partitions: int = 1) -> str:
    """Create a topic that no run of the example before has used, and return its name."""
    topic = f"{name}-{uuid.uuid4().hex[:6]}"
    with zhumq.Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions)
    return topic
