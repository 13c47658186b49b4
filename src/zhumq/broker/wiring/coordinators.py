"""Constructs the coordinators of a broker, in the order in which they need one another."""

import contextlib
from collections.abc import Iterable
from typing import Self

from zhumq.broker.wiring.delay_coordinator import DelayCoordinator
from zhumq.broker.wiring.delivery import DeliveryCoordinator
from zhumq.broker.wiring.foundation import Foundation
from zhumq.broker.wiring.group_coordinator import GroupCoordinator
from zhumq.broker.wiring.half_message_coordinator import HalfMessageCoordinator
from zhumq.broker.wiring.lookup import Lookups
from zhumq.broker.wiring.schemas import SchemaChecks
from zhumq.broker.wiring.transaction_coordinator import TransactionCoordinator, open_markers
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, DELAYED_MESSAGES_TOPIC, HALF_MESSAGES_TOPIC
from zhumq.model.metric import Metric


class Coordinators:
    """Everything that a broker does beyond storing and replicating partitions."""

    def __init__(self, base: Foundation) -> None:
        self.transactions = TransactionCoordinator(base)
        self.groups = GroupCoordinator(base, self.transactions.routed)
        self.schemas = SchemaChecks(base)
        self.half_messages = HalfMessageCoordinator(base, self.transactions, self.schemas.known)
        self.delays = DelayCoordinator(base, self.transactions)
        self.markers = open_markers(
            base,
            self.transactions,
            {
                CONSUMER_OFFSETS_TOPIC: self.groups.runtime,
                HALF_MESSAGES_TOPIC: self.half_messages.runtime,
                DELAYED_MESSAGES_TOPIC: self.delays.runtime,
            },
        )
        self.delivery = DeliveryCoordinator(base, self.groups)
        self.lookups = Lookups(base)

    @classmethod
    def open(cls, base: Foundation, parts: contextlib.AsyncExitStack) -> Self:
        """They follow the metadata until `parts` close."""
        opened = cls(base)
        parts.push_async_callback(opened.transactions.close)
        parts.push_async_callback(opened.groups.close)
        parts.push_async_callback(opened.half_messages.close)
        parts.push_async_callback(opened.delays.close)
        parts.push_async_callback(opened.markers.close)
        parts.push_async_callback(opened.delivery.close)
        parts.callback(opened.lookups.close)
        parts.callback(opened.schemas.close)
        for each in (
            base.replicas,
            opened.groups,
            opened.delivery,
            opened.lookups,
            opened.delays,
            opened.schemas,
        ):
            each.apply(base.store.image)
            base.store.watch(each.apply)
        return opened

    def loading(self) -> dict[str, int]:
        """How many partitions of each internal topic are led here and not coordinated yet."""
        parts = (self.groups, self.transactions, self.delivery, self.half_messages, self.delays)
        return {each.topic.name: each.topic.loading_count for each in parts}

    def metrics(self) -> Iterable[Metric]:
        yield from self.groups.lags.metrics()
        yield from self.delivery.metrics()
        yield from self.transactions.metrics(self.markers)
        yield from self.half_messages.metrics()
        yield from self.delays.metrics()
        yield from self.lookups.metrics()
        yield from self.schemas.metrics()
