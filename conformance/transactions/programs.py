"""The programs of the suite of transactions: how each is started, stopped, and where it writes."""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server import REPOSITORY, Prepared

CLIENTS = REPOSITORY / "conformance" / "transactions" / "clients"
PYTHON = str(REPOSITORY / ".venv" / "bin" / "python")
JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
COMMAND_WAIT_S = 120
LOOK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Of one run."""

    build: Path
    kafka_libs: Path
    bootstrap: str
    logs: Path

    @property
    def java(self) -> tuple[str, ...]:
        logging = f"-Dlog4j2.configurationFile={self.build / 'log4j2.properties'}"
        path = f"{self.build / 'classes'}:{self.build / 'libs'}/*:{self.kafka_libs}/*"
        return ("java", *JAVA_OPTIONS, logging, "-cp", path)

    def client(self, name: str) -> tuple[str, ...]:
        programs: dict[str, tuple[str, ...]] = {
            "java": (*self.java, "transactions.Steps"),
            "librdkafka": (PYTHON, str(CLIENTS / "python" / "librdkafka_transactions.py")),
            "kafka-python": (PYTHON, str(CLIENTS / "python" / "kafka_python_transactions.py")),
            "aiokafka": (PYTHON, str(CLIENTS / "python" / "aiokafka_transactions.py")),
            "franz-go": (str(self.build / "franzgo"),),
            "sarama": (str(self.build / "sarama"),),
            "kafka-go": (str(self.build / "kafkago"),),
            "kafkajs": ("node", str(CLIENTS / "javascript" / "kafkajs.js")),
        }
        return programs[name]

    def start(self, name: str, command: Sequence[str]) -> "Running":
        """Start a program; what it writes is in the log of this name."""
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return Running(process)

    def start_java(self, name: str, program: str, **arguments: str) -> "Running":
        words = [word for key, value in arguments.items() for word in (f"--{key}", value)]
        return self.start(
            name, (*self.java, f"transactions.{program}", "--bootstrap", self.bootstrap, *words)
        )

    def command(self, tool: str, *arguments: str) -> str:
        """What one of Kafka's own commands prints. Raises AssertionError if it fails."""
        done = subprocess.run(
            [*self.java, tool, "--bootstrap-server", self.bootstrap, *arguments],
            capture_output=True, text=True, timeout=COMMAND_WAIT_S, check=False,
        )  # fmt: skip
        output = f"$ {tool} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        with (self.logs / "commands.log").open("a") as log:
            log.write(output)
        assert done.returncode == 0, output
        return done.stdout


class Running:
    """A program that runs until it is killed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class KilledBroker:
    """A broker that is killed and started again, at the same address."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._server = prepared.start()
        self.bootstrap = prepared.bootstrap
        self.log = prepared.log

    def kill(self) -> None:
        """Send SIGKILL, and start it again."""
        self._server.process.kill()
        self._server.process.wait()
        self._server = self._prepared.start()

    def stop(self) -> bool:
        """Stop it; whether it had ended by itself."""
        has_died = self._server.process.poll() is not None
        self._server.stop()
        return has_died


def wait_until(fact: Callable[[], bool], what: str, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while not fact():
        assert time.monotonic() < deadline, f"not within {wait_s:g} s: {what}"
        time.sleep(LOOK_AGAIN_S)
