"""A broker that kills itself at a certain point of the way of a delayed message: `python crashing_delays.py POINT start ...`.

The points are those between which something becomes durable: the deferred batch, the staged messages, the messages in their
topic, the mark, the decision of the transaction, the markers.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from zhumq.cli.main import main
from zhumq.coordinators.broker_transactions import BrokerTransactions
from zhumq.coordinators.delay_mover import StagedDelays
from zhumq.coordinators.delay_service import DelayService
from zhumq.coordinators.markers import MarkerAppender
from zhumq.coordinators.mover import Mover
from zhumq.protocol.messages.delays import StageDelayedRequest

Call = Callable[..., Awaitable[Any]]


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


def before(_call: Call) -> Call:
    async def crash(*_: Any, **__: Any) -> Any:
        die()

    return crash


def after(call: Call) -> Call:
    async def crash(*arguments: Any, **named: Any) -> Any:
        await call(*arguments, **named)
        die()

    return crash


def _has_records(arguments: tuple[Any, ...]) -> bool:
    return any(isinstance(each, StageDelayedRequest) and each.records for each in arguments)


def before_staging(call: Call) -> Call:
    async def crash(*arguments: Any) -> Any:
        if _has_records(arguments):
            die()
        return await call(*arguments)

    return crash


def after_staging(call: Call) -> Call:
    async def crash(*arguments: Any) -> Any:
        answer = await call(*arguments)
        if _has_records(arguments):
            die()
        return answer

    return crash


# The class and its method, and whether to die before or after the call.
POINTS: dict[str, tuple[Any, str, Callable[[Call], Call]]] = {
    "deferred": (DelayService, "stage", before_staging),
    "staged": (DelayService, "stage", after_staging),
    "due": (Mover, "move", before),
    "begun": (Mover, "begin", after),
    "appended": (BrokerTransactions, "append", after),
    "joined": (BrokerTransactions, "join", after),
    "marked": (StagedDelays, "mark_moved", after),
    "ending": (BrokerTransactions, "end", before),
    "ended": (BrokerTransactions, "end", after),
    "markers": (MarkerAppender, "append", after),
    "moved": (Mover, "move", after),
}

if __name__ == "__main__":
    owner, name, when = POINTS[sys.argv.pop(1)]
    setattr(owner, name, when(getattr(owner, name)))
    sys.argv[0] = "zhumq"
    main()
