"""The process of a broker: its signals, limits and garbage collection, from start to exit code."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import uvloop

from zhumq.broker.app import BrokerApp
from zhumq.broker.config import BrokerConfig
from zhumq.host.memory import keep_freed_memory
from zhumq.model.address import Address
from zhumq.model.errors import ZhumqError

logger = logging.getLogger(__name__)

# New objects between two collections: a thousand requests in flight are far below it.
GARBAGE_THRESHOLD: Final = 50_000
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

# What runs beside a broker: takes the address of its first listener, and gives words for the end of the ready line.
Companion = Callable[[Address], AbstractAsyncContextManager[str]]


def serve(config: BrokerConfig, companion: Companion | None = None) -> int:
    """Run a broker until SIGTERM or SIGINT. Returns the exit code of the program."""
    keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, companion))


async def _serve(config: BrokerConfig, companion: Companion | None) -> int:
    _allow_many_open_files()
    for warning in config.warnings:
        logger.warning("%s", warning)
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(stop_signal, asked_to_stop.set)
    try:
        app = await BrokerApp.start(config)
    except ZhumqError as reason:
        sys.stderr.write(f"zhumq: {reason}\n")
        return EXIT_FAILED
    _collect_garbage_rarely()
    code = EXIT_OK
    async with contextlib.AsyncExitStack() as beside:
        line = app.ready_line
        if companion is not None:
            try:
                line += f" {await beside.enter_async_context(companion(app.kafka_address))}"
            except ZhumqError as reason:
                sys.stderr.write(f"zhumq: {reason}\n")
                asked_to_stop.set()
                code = EXIT_FAILED
        if not asked_to_stop.is_set():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        await asked_to_stop.wait()
        logger.info("stopping")
    await app.stop()
    logger.info("stopped")
    return code


def _allow_many_open_files() -> None:
    """Raise the limit of open files: each partition and each connection needs some."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _collect_garbage_rarely() -> None:
    """Raise the thresholds of the garbage collector: requests leave no cycles to find."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
