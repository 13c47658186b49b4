"""What the endpoint and the worker know: an order, and where the broker is."""

import os
from dataclasses import dataclass

BOOTSTRAP = os.environ.get("ZHUMQ_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = "orders"


@dataclass
class Order:
    customer: str
    item: str
    count: int = 1
