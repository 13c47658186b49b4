"""Each test of this room runs on both event loops."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from net_support import DEADLINE_SECONDS, LOOPS


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a test's coroutine on a loop of its own; errors that the loop reports are a failure."""

    def run_on_loop(work: Coroutine[Any, Any, None]) -> None:
        loop_errors: list[dict[str, Any]] = []

        async def limited() -> None:
            asyncio.get_running_loop().set_exception_handler(
                lambda loop, context: loop_errors.append(context)
            )
            async with asyncio.timeout(DEADLINE_SECONDS):
                await work

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(limited())
        assert not loop_errors

    return run_on_loop
