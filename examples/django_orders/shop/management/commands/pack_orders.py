"""Packs orders until SIGTERM: `python manage.py pack_orders`."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

import zhumq
from shop.orders import TOPIC, Order


class Command(BaseCommand):
    help = "Pack orders until SIGTERM."

    def handle(self, *_args: Any, **_options: Any) -> None:
        worker = zhumq.Worker(
            TOPIC,
            self.pack,
            group="packers",
            bootstrap=settings.ZHUMQ_BOOTSTRAP,
            value=zhumq.Json(Order),
            key=zhumq.Text(),
            on_undecodable="dead-letter",
            on_failure="dead-letter",
        )
        worker.run()

    def pack(self, task: "zhumq.Task[Order, str]") -> None:
        order = task.value
        if order is None:
            return
        if order.count < 1:
            raise ValueError(f"nothing to pack for {order.customer}")
        print(f"packed {order.count} x {order.item} for {task.key}", flush=True)
