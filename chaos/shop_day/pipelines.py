"""The pipelines of the shop as processes on a Spark cluster: started, killed, stopped, run to their end."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.shop_day.facts import TOPICS
from chaos.spark_cluster import SPARK_HOME
from chaos.spark_driver import Driver
from zhumq.spark.worker_python import worker_python

FILES: Final = Path(__file__).parent / "files"
CHANGES: Final = "shop-changes"
CLICKS: Final = "shop-clicks"
ARCHIVE: Final = "shop-archive"
NAMES: Final = (CHANGES, CLICKS, ARCHIVE)
AUDIT: Final = "shop-audit"
TRIGGER: Final = "5s"
AFTER_NOON: Final = "id INT, name STRING, city STRING, tier STRING"
STOP_SECONDS_MAX: Final = 240.0
RUN_SECONDS_MAX: Final = 900.0
LOG_TAIL_CHARACTERS: Final = 4000
ROWS_FOUND: Final = 3  # the exit code of a run whose data is wrong
# Three drivers share a small machine, each with one executor.
SPARK_SETTINGS: Final = """\
spark.cores.max 1
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.driver.memory 700m
spark.executor.memory 700m
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.sql.shuffle.partitions 2
spark.python.authenticate.socketTimeout 120s
spark.python.unix.domain.socket.enabled true
"""


class RunFailed(Exception):
    """A pipeline that did not come to its end."""


@dataclass(slots=True, kw_only=True)
class Pipelines:
    """The drivers, by the names of their pipelines."""

    folder: Path
    master: str
    bootstrap: str
    drivers: dict[str, Driver] = field(default_factory=dict)
    customers: str | None = None  # the columns that the file has instead of its own

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    @property
    def audit_report(self) -> Path:
        return self.folder / "audit.json"

    def start(self, name: str) -> None:
        """Start a pipeline as a stream. One of its name has to be gone."""
        self.drivers[name] = self._driver(name, trigger=TRIGGER)

    def batches(self, name: str) -> int:
        """How many micro-batches Spark has recorded as done, of all queries of a pipeline."""
        last: dict[Path, int] = {}
        for commit in (self._state_dir / name / "checkpoints").rglob("commits/[0-9]*"):
            if commit.name.isdigit():
                last[commit.parent] = max(last.get(commit.parent, 0), int(commit.name) + 1)
        return sum(last.values())

    def kill(self, name: str, draw: random.Random) -> str:
        """Kill parts of a driver, and start it again. Returns what was killed."""
        what = draw.choice(("all", "python", "jvm"))
        self.drivers[name].kill(what)
        self.start(name)
        return f"{name} ({what})"

    def stop(self, name: str) -> int:
        """Let a stream finish its batch; returns the exit code."""
        driver = self.drivers.pop(name)
        try:
            driver.ask_to_stop()
            return driver.wait(STOP_SECONDS_MAX)
        finally:
            driver.end()

    def finish(self, name: str) -> None:
        """Let a pipeline process what is left, and end. Raises RunFailed."""
        self._run(name, self._driver(name, trigger="available-now"), (0,))

    def audit(self) -> None:
        """Audit the archive of all topics; the findings are in the report. Raises RunFailed."""
        words = ["audit", "--set", f"audit={AUDIT}", "--set", f"report={self.audit_report}"]
        words += self._archive_words()
        self._run(AUDIT, self._process(AUDIT, words), (0, ROWS_FOUND))

    def end(self) -> None:
        """Kill what still runs."""
        for driver in self.drivers.values():
            driver.end()

    def log_tail(self, name: str) -> str:
        logs = [self._log(name), self._state_dir / name / "spark.log"]
        return "\n".join(
            f"{log.name} of {name} ends with\n{log.read_text()[-LOG_TAIL_CHARACTERS:]}"
            for log in logs
            if log.exists()
        )

    @property
    def _state_dir(self) -> Path:
        return self.folder / "state"

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _driver(self, name: str, *, trigger: str) -> Driver:
        match name:
            case "shop-archive":
                words = ["archive", "--set", f"name={ARCHIVE}", *self._archive_words()]
            case _:
                words = [str(FILES / f"{name.removeprefix('shop-')}.yml")]
                words += ["--set", f"tables={self.tables}"]
        if name == CHANGES and self.customers is not None:
            words += ["--set", f"customers={self.customers}"]
        return self._process(name, [*words, "--set", f"trigger={trigger}"])

    def _archive_words(self) -> list[str]:
        return ["--set", f"topic={','.join(TOPICS)}", "--set", f"table={self.tables / 'archive'}"]

    def _process(self, name: str, words: list[str]) -> Driver:
        settings = self.folder / "spark-conf"
        if not settings.exists():
            settings.mkdir()
            (settings / "spark-defaults.conf").write_text(SPARK_SETTINGS)
        words = [*words, "--master", self.master, "--bootstrap", self.bootstrap]
        words += ["--state-dir", str(self._state_dir)]
        environment = {
            "SPARK_CONF_DIR": str(settings),
            # All workers are on this machine: theirs is the Python that starts quickly.
            "PYSPARK_PYTHON": str(worker_python(self.folder, spark_home=SPARK_HOME.resolve())),
        }
        return Driver(words, self._log(name), environment=environment)

    def _run(self, name: str, driver: Driver, codes: tuple[int, ...]) -> None:
        try:
            code = driver.wait(RUN_SECONDS_MAX)
        finally:
            driver.end()
        if code not in codes:
            raise RunFailed(f"{name} ended with exit code {code}; {self.log_tail(name)}")
