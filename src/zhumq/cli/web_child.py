"""The REST API as a child process of a broker: starts with it, and ends with it."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from zhumq.cli.options import CommandFailed
from zhumq.model.address import Address

logger = logging.getLogger(__name__)

READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 10.0
_LOOPBACK: Final = "127.0.0.1"
_READY: Final = "zhumq web ready url="


@contextlib.asynccontextmanager
async def web_child(
    broker: Address, listen: str, *, config: Path | None, insecure: bool, log: Sequence[str]
) -> AsyncIterator[str]:
    """Run `zhumq web` until the end of the block. Gives what the broker's ready line says of it.

    A process of its own: what it computes does not delay the broker. `log` are the options of its log.
    Raises CommandFailed if it does not serve.
    """
    bootstrap = replace(broker, host=_LOOPBACK) if broker.is_unspecified else broker
    command = ["-m", "zhumq", "web", "--listen", listen, "--bootstrap", str(bootstrap)]
    command += ["--until-stdin-closes"]
    command += ["--config", str(config)] if config is not None else []
    command += ["--insecure"] if insecure else []
    command += log
    # Its stdin is never written to. The kernel closes it when this process ends, however it ends.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    watching = asyncio.create_task(_watch(process))
    try:
        yield f"web={await _url(process)}"
    finally:
        watching.cancel()
        await _stop(process)


async def _watch(process: asyncio.subprocess.Process) -> None:
    code = await process.wait()
    logger.error("the REST API has ended with code %d: the broker serves without it", code)


async def _url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_SECONDS_MAX):
            line = await process.stdout.readline()
    text = line.decode(errors="replace")
    if not text.startswith(_READY):
        raise CommandFailed("--web: the REST API does not serve: its error is above")
    return text.removeprefix(_READY).partition(" ")[0]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.wait()
