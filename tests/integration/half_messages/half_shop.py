"""A shop that takes orders: an order in SQLite and its half message. It stops in the middle, to be killed.

python half_shop.py BOOTSTRAP DATABASE prepare|order|commit
"""

import signal
import sys
from pathlib import Path

from half_support import Orders

import zhumq


def main() -> None:
    bootstrap, database, stops_after = sys.argv[1:]
    orders = Orders(Path(database))
    producer = zhumq.HalfMessageProducer(
        bootstrap, group="shop", check=lambda half: orders.has(half.id)
    )
    half = producer.prepare("orders", f"order, stopped after {stops_after}")
    if stops_after != "prepare":
        orders.add(half.id, f"order, stopped after {stops_after}")
    if stops_after == "commit":
        half.commit()
    sys.stdout.write(half.id + "\n")
    sys.stdout.flush()
    # Dead to the broker at once, as far as checks go: they are for another producer of the group.
    signal.pause()


if __name__ == "__main__":
    main()
