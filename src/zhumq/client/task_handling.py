"""Calls the handler of a worker with decoded tasks, inside of the middleware."""

from collections.abc import Callable, Sequence
from typing import Any

from zhumq.client.codec import Codec
from zhumq.client.middleware import Middleware, around_handling
from zhumq.client.outputs import Outputs
from zhumq.client.task import Task


def handle_decoded(
    handler: Callable[..., None], codec: Codec[Any, Any], middleware: Sequence[Middleware]
) -> Callable[..., None]:
    """A handler of tasks as they were read, which calls the program's with decoded ones."""

    def handle(task: Task, *outputs: Outputs) -> None:
        decoded = codec.decode_task(task)
        with around_handling(middleware, decoded):
            handler(decoded, *outputs)

    return handle
