"""A Spark standalone cluster on this machine, from the jars and scripts of PySpark."""

import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from zhumq.host.ports import free_ports
from zhumq.spark.session import prepare_environment
from zhumq.testing.cluster import wait_for

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 120.0  # on a busy machine
STOP_SECONDS_MAX = 30.0
HOST = "127.0.0.1"
EXECUTOR = b"CoarseGrainedExecutorBackend"
PYTHON_WORKER = b"pyspark.daemon"  # it forks the workers, which have its command line
# The daemons log their addresses at this level.
LOG4J = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %m%n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standalone:
    """A running cluster."""

    master: str
    work_dirs: tuple[Path, ...]

    def executors(self) -> list[list[str]]:
        """The executors that each worker has run: a folder for each."""
        return [
            sorted(path.name for path in folder.glob("app-*/*") if path.is_dir())
            for folder in self.work_dirs
        ]

    def executor_pids(self) -> list[int]:
        """The executors that run now: a worker starts them in its folder."""
        return self._pids(EXECUTOR)

    def kill_executor(self, choices: random.Random) -> bool:
        """Send SIGKILL to one of them; its worker starts another one. False: none runs."""
        return _kill_one(self.executor_pids(), choices)

    def kill_python_worker(self, choices: random.Random) -> bool:
        """Send SIGKILL to a Python process of an executor. False: none runs."""
        return _kill_one(self._pids(PYTHON_WORKER), choices)

    def _pids(self, word: bytes) -> list[int]:
        """The processes with a word in their command that run in the folder of a worker."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    folder = (process / "cwd").readlink()
                    words = (process / "cmdline").read_bytes()
                except OSError:
                    continue
                is_ours = any(folder.is_relative_to(each) for each in self.work_dirs)
                if is_ours and word in words:
                    found.append(int(process.name))
        return sorted(found)


def _kill_one(pids: list[int], choices: random.Random) -> bool:
    with suppress(ProcessLookupError):
        if pids:
            os.kill(choices.choice(pids), signal.SIGKILL)
            return True
    return False


@contextmanager
def standalone_cluster(
    folder: Path, *, hosts: Sequence[str] = (HOST, HOST)
) -> Iterator[Standalone]:
    """A master and a worker for each host, each with one core; stopped at the end of the block."""
    prepare_environment()
    configuration = folder / "conf"
    configuration.mkdir()
    (configuration / "log4j2.properties").write_text(LOG4J)
    with ExitStack() as stack:
        log = folder / "master.log"
        words = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        stack.enter_context(_daemon("master.Master", words, configuration, log))
        master = _wait_for(r"Starting Spark master at (spark://\S+)", log)
        work_dirs = []
        for number, host in enumerate(hosts):
            work_dir = folder / f"worker-{number}"
            words = ["--host", host, "--port", "0", "--webui-port", "0", "--cores", "1"]
            words += ["--memory", "1g", "--work-dir", str(work_dir), master]
            log = folder / f"worker-{number}.log"
            stack.enter_context(_daemon("worker.Worker", words, configuration, log))
            work_dirs.append(work_dir)
        for number in range(len(hosts)):
            _wait_for(r"Successfully registered with (master)", folder / f"worker-{number}.log")
        yield Standalone(master=master, work_dirs=tuple(work_dirs))


@contextmanager
def connect_server(folder: Path, *, master: str) -> Iterator[str]:
    """A server of Spark Connect on a cluster; yields its address, which begins with sc://."""
    prepare_environment()
    configuration = folder / "connect-conf"
    configuration.mkdir()
    (configuration / "log4j2.properties").write_text(LOG4J)
    (port,) = free_ports(1)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": HOST,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
    }
    words = [
        "--master",
        master,
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
    ]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    log = folder / "connect.log"
    with _daemon("SparkSubmit", [*words, "spark-internal"], configuration, log, memory="1g"):
        _wait_for(r"Spark Connect server (started) at", log)
        yield f"sc://{HOST}:{port}"


@contextmanager
def _daemon(
    name: str, words: list[str], configuration: Path, log: Path, *, memory: str = "256m"
) -> Iterator[None]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(configuration),
        "SPARK_DAEMON_MEMORY": memory,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 (Spark's own)
            [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *words],
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(pattern: str, log: Path) -> str:
    found = wait_for(
        lambda: re.search(pattern, log.read_text()), f"{pattern} in {log}", START_SECONDS_MAX
    )
    return found[1]
