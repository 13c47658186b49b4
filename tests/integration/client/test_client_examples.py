"""The examples in the client's docstrings, docs/client.md, docs/push.md, docs/filters.md and docs/lookup.md run against a real broker."""

import doctest
import re
from pathlib import Path
from types import ModuleType

import pytest

import zhumq.admin.client
import zhumq.client.async_consumer
import zhumq.client.async_producer
import zhumq.client.async_worker
import zhumq.client.caller
import zhumq.client.claim_check
import zhumq.client.consumer
import zhumq.client.half_message_producer
import zhumq.client.priority_consumer
import zhumq.client.producer
import zhumq.client.push_consumer
import zhumq.client.serializers
import zhumq.client.service
import zhumq.client.transaction_core
import zhumq.client.transactional_consumer
import zhumq.client.transactional_producer
import zhumq.client.worker
from zhumq import Admin
from zhumq.testing.broker import RunningBroker

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(
    "module",
    [
        zhumq.admin.client,
        zhumq.client.caller,
        zhumq.client.claim_check,
        zhumq.client.async_consumer,
        zhumq.client.async_producer,
        zhumq.client.async_worker,
        zhumq.client.consumer,
        zhumq.client.half_message_producer,
        zhumq.client.priority_consumer,
        zhumq.client.producer,
        zhumq.client.push_consumer,
        zhumq.client.service,
        zhumq.client.serializers,
        zhumq.client.transaction_core,
        zhumq.client.transactional_consumer,
        zhumq.client.transactional_producer,
        zhumq.client.worker,
    ],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_the_examples_of_a_module_run(zhumq_broker: RunningBroker, module: ModuleType) -> None:
    with Admin(zhumq_broker.bootstrap) as admin:
        for topic in ("greetings", "events", "orders", "jobs"):
            admin.create_topic(topic, partitions=1)
    done = doctest.testmod(module, extraglobs={"bootstrap": zhumq_broker.bootstrap})
    assert done.failed == 0
    assert done.attempted > 0


@pytest.mark.thorough
@pytest.mark.parametrize("page", ["client.md", "push.md", "filters.md", "lookup.md"])
def test_the_examples_of_the_docs_run(zhumq_broker: RunningBroker, page: str) -> None:
    text = (DOCS / page).read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert examples
    names: dict[str, object] = {}
    for example in examples:
        source = example.replace("127.0.0.1:9092", zhumq_broker.bootstrap)
        exec(compile(source, f"docs/{page}", "exec"), names)
