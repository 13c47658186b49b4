"""What holds for every test."""

import signal
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.schedule import LoadFilesAndSpark
    from xdist.remote import Producer

# No time limit for an example: speed is measured by the benchmarks, and a busy machine is no fault of the code.
settings.register_profile("zhumq", deadline=None)
settings.load_profile("zhumq")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that may take long come first: else one of them is all that runs in the end, on one of the cores."""
    seconds: dict[str, float] = defaultdict(float)
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit = (
            float(marker.args[0]) if marker else float(item.get_closest_marker("slow") is not None)
        )
        seconds[item.location[0]] = max(seconds[item.location[0]], limit)
    items.sort(key=lambda item: -seconds[item.location[0]])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: "Producer"
) -> "LoadFilesAndSpark | None":
    # Imported here: without workers there is nothing to schedule, and xdist need not be there.
    from tests.schedule import scheduler

    return scheduler(config, log)
