"""The state of a run that the kinds of runs and the end phase share."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chaos.cluster_under_test import ClusterUnderTest
from chaos.findings import Findings
from chaos.history import Recorder
from chaos.nemesis import Nemesis
from chaos.serving import ServingProbe
from chaos.workload import Workload

HEAL_SECONDS_MAX: Final = 60.0
LOOK_AGAIN_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """A running cluster under a running workload."""

    seed: int
    cluster_under_test: ClusterUnderTest
    nemesis: Nemesis
    workload: Workload
    recorder: Recorder
    findings: Findings
    probe: ServingProbe
    print_line: Callable[[str], None]

    @property
    def topics(self) -> dict[str, int]:
        """The topics that are written to, with their partitions."""
        return {topic.name: topic.partitions for topic in self.workload.plan.topics}

    def wait_until(self, fact: Callable[[], bool], seconds_max: float = HEAL_SECONDS_MAX) -> bool:
        """Whether the fact becomes true in time."""
        deadline = time.monotonic() + seconds_max
        while not fact():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_AGAIN_SECONDS)
        return True
