"""A real broker inside the test process, with its own thread, event loop and folder."""

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from zhumq.broker.app import BrokerApp
from zhumq.broker.config import BrokerConfig
from zhumq.broker.kept_ports import PORTS_FILE, keep_ports
from zhumq.host.clock import Clock
from zhumq.host.disk import Disk, SystemDisk
from zhumq.host.ports import free_ports
from zhumq.model.errors import ZhumqError
from zhumq.model.password import Password
from zhumq.testing.process import NO_WATERMARKS

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
_ANY_PORT: Final = "127.0.0.1:0"
_PORT_NAMES: Final = ("kafka", "push", "http")


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """The addresses of the broker."""

    bootstrap: str
    http: str
    push: str
    data_dir: Path
    app: BrokerApp


@contextlib.contextmanager
def broker(
    *,
    data_dir: Path | None = None,
    settings: Mapping[str, str] | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
    listen: str = _ANY_PORT,
    admin: tuple[str, str] | None = None,
) -> Iterator[RunningBroker]:
    """Run a broker on free ports until the end of the block, and on the same ones when its data folder is used again.

    Without a data folder it uses a temporary one. `admin` is a user and its password, who is created
    at the start. Clients connect to `bootstrap` as to any broker:

        with broker() as running:
            producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap})
    """
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zhumq-")))
        admin_user, admin_password = admin or (None, "")
        config = BrokerConfig.load(
            listen=listen,
            http=_ANY_PORT,
            data_dir=data_dir,
            settings={**NO_WATERMARKS, **(settings or {})},
            admin_user=admin_user,
            admin_password=Password(admin_password),
        )
        _choose_ports(config)
        loop = uvloop.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="zhumq-broker", daemon=True)
        thread.start()
        is_stuck = threading.Event()
        stack.callback(_end_loop, loop, thread, is_stuck)
        app = asyncio.run_coroutine_threadsafe(
            BrokerApp.start(config, disk=disk, clock=clock), loop
        ).result(START_SECONDS_MAX)
        try:
            yield RunningBroker(
                str(app.kafka_address), str(app.http_address), app.push_name, data_dir, app
            )
        finally:
            is_stuck.set()
            asyncio.run_coroutine_threadsafe(app.stop(), loop).result(STOP_SECONDS_MAX)
            is_stuck.clear()


def _choose_ports(config: BrokerConfig) -> None:
    """Write down ports for a new data folder as if the system had chosen them: of the system's own choice any
    outgoing connection may take one before the broker starts again."""
    disk = SystemDisk()
    # A folder that cannot be used is the broker's to report.
    with contextlib.suppress(ZhumqError):
        if disk.read_file(str(config.data_dir / PORTS_FILE)) is None:
            disk.make_directory(str(config.data_dir))
            keep_ports(config, disk, dict(zip(_PORT_NAMES, free_ports(3), strict=True)))


def _end_loop(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, is_stuck: threading.Event
) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(STOP_SECONDS_MAX)
    # uvloop's close() waits for what a failed broker has left on the loop, possibly for ever.
    if not is_stuck.is_set() and not thread.is_alive():
        loop.close()
