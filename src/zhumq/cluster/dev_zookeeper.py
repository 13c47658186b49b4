"""A real Apache ZooKeeper on this machine, from the jars inside PySpark, for development and tests.

Not for production, where `--zookeeper` names an installed ensemble.
"""

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from zhumq.host.clock import SystemClock
from zhumq.host.java import find_java
from zhumq.host.ports import HOST, free_ports
from zhumq.model.errors import ZhumqError

READY_MS_MAX: Final = 60_000
STOP_SECONDS_MAX: Final = 20.0
ASK_SECONDS_MAX: Final = 2.0
LOOK_AGAIN_SECONDS: Final = 0.05
WATCH_SECONDS: Final = 0.5  # per node and round of wait_until_one_ends
NODES_MAX: Final = 7
LOG_TAIL_LINES: Final = 5
JAAS_FILE: Final = "jaas.conf"
# Sessions may be as short as two ticks, so that tests need not wait long for one to expire.
TICK_MS: Final = 500
SESSION_MS_MAX: Final = 60_000
# All of PySpark's three hundred jars would work too, but the JVM starts faster with these.
_JARS: Final = ("zookeeper-*.jar", "slf4j-api-*.jar", "log4j-*.jar", "metrics-core-*.jar")
_MORE_JARS: Final = ("netty-*.jar", "snappy-java-*.jar", "commons-*.jar", "audience-*.jar")


class DevZookeeperFailed(ZhumqError):
    """The development ensemble cannot run; the message names what is missing or in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevSecurity:
    """What a client of the ensemble can do beside plain connections: TLS on a second port, and SASL."""

    # PEM files. Without a trust store the servers do not ask for the certificates of clients.
    keystore: Path | None = None
    truststore: Path | None = None
    # The users of SASL/DIGEST-MD5 with their passwords.
    users: Mapping[str, str] = field(default_factory=dict, repr=False)


class ZookeeperNode:
    """One server of the ensemble: a JVM, its folder and its ports."""

    def __init__(
        self, number: int, port: int, folder: Path, secure_port: int | None = None
    ) -> None:
        self.number = number
        self.port = port
        self.secure_port = secure_port  # for TLS
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start it first"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, command: list[str]) -> None:
        with open(self.folder / "stdout.log", "ab") as output:
            # Its own session: Ctrl-C reaches only the parent process, which then stops the ensemble.
            self._process = subprocess.Popen(  # noqa: S603 (the Java that was found, our own arguments)
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def has_ended_within(self, seconds: float) -> bool:
        assert self._process is not None, "start it first"
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def wait_until_ready(self, deadline_ms: int, clock: SystemClock) -> None:
        """Return when it serves, alone or in its quorum. Raises DevZookeeperFailed."""
        assert self._process is not None
        while self.mode() is None:
            if self.has_ended_within(LOOK_AGAIN_SECONDS):
                raise DevZookeeperFailed(
                    f"ZooKeeper on {self.address} ended with code {self._process.returncode}:"
                    f" {self._log_tail()}"
                )
            if clock.monotonic_ms() > deadline_ms:
                raise DevZookeeperFailed(
                    f"ZooKeeper on {self.address} does not serve after"
                    f" {READY_MS_MAX // 1_000} s: {self._log_tail()}"
                )

    def mode(self) -> str | None:
        """`standalone`, `leader` or `follower`, or None while it does not serve."""
        try:
            with socket.create_connection((HOST, self.port), ASK_SECONDS_MAX) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4_096):
                    answer += chunk
        except OSError:
            return None
        for line in answer.decode(errors="replace").splitlines():
            name, _, value = line.partition(": ")
            if name == "Mode":
                return value.strip()
        return None

    def kill(self) -> None:
        """SIGKILL: the server is gone, its folder stays."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: the server keeps its connections and answers no request."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(with_signal)
            process.send_signal(signal.SIGCONT)  # A stopped process handles only SIGKILL.
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log_lines(self) -> list[str]:
        """What it has logged, and behind it what it has printed."""
        lines: list[str] = []
        for name in ("zookeeper.log", "stdout.log"):
            with contextlib.suppress(OSError):
                lines += (self.folder / name).read_text(errors="replace").splitlines()
        return lines

    def _log_tail(self) -> str:
        return " | ".join(line.strip() for line in self.log_lines()[-LOG_TAIL_LINES:]) or "no log"


class DevZookeeper:
    """A running ensemble of one or more nodes."""

    def __init__(self, nodes: list[ZookeeperNode], java: str, class_path: str) -> None:
        self.nodes = nodes
        self._java = java
        self._class_path = class_path

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        nodes: int = 1,
        base_port: int = 0,
        security: DevSecurity | None = None,
    ) -> Self:
        """Start the nodes on consecutive ports, or on free ones for port 0, and wait for them."""
        if not 1 <= nodes <= NODES_MAX:
            raise DevZookeeperFailed(f"an ensemble has 1 to {NODES_MAX} nodes, not {nodes}")
        java, class_path = str(find_java().executable), find_class_path()
        ports = _client_ports(nodes, base_port)
        members = free_ports(2 * nodes)
        folder = data_dir.resolve()
        servers = []
        for index, port in enumerate(ports):
            secure_port = free_ports(1)[0] if security is not None and security.keystore else None
            server = ZookeeperNode(index + 1, port, folder / f"node-{index + 1}", secure_port)
            _write_files(server, ports, members, security or DevSecurity())
            servers.append(server)
        ensemble = cls(servers, java, class_path)
        try:
            for server in servers:
                ensemble._launch(server)
            ensemble.wait_until_ready()
        except BaseException:
            ensemble.stop()
            raise
        return ensemble

    @property
    def connect(self) -> str:
        """The connect string of the ensemble: the address of every node."""
        return ",".join(node.address for node in self.nodes)

    @property
    def secure_connect(self) -> str:
        """The connect string for TLS."""
        return ",".join(f"{HOST}:{node.secure_port}" for node in self.nodes)

    def wait_until_ready(self) -> None:
        """Return when every running node serves."""
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + READY_MS_MAX
        for node in self.nodes:
            node.wait_until_ready(deadline_ms, clock)

    def restart(self, *nodes: ZookeeperNode) -> None:
        """Start killed nodes again on their folders and ports, and wait until they serve."""
        # Start all before waiting: no node serves before a majority runs.
        for node in nodes:
            self._launch(node)
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + READY_MS_MAX
        for node in nodes:
            node.wait_until_ready(deadline_ms, clock)

    def wait_until_one_ends(self, is_stopping: Callable[[], bool]) -> ZookeeperNode | None:
        """Block until a node has ended, and return it, or until `is_stopping` says so: None.

        Ctrl-C ends the nodes too; that is a stop.
        """
        while True:
            for node in self.nodes:
                has_ended = node.has_ended_within(WATCH_SECONDS)
                if is_stopping():
                    return None
                if has_ended:
                    return node

    def leader(self) -> ZookeeperNode:
        """The node that leads the quorum, or the only one."""
        for node in self.nodes:
            if node.mode() in ("leader", "standalone"):
                return node
        raise DevZookeeperFailed("no node leads")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def _launch(self, node: ZookeeperNode) -> None:
        logging = node.folder / "log4j2.properties"
        node.start(
            [
                self._java,
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dzookeeper.admin.enableServer=false",
                f"-Dlog4j2.configurationFile={logging}",
                f"-Djava.security.auth.login.config={node.folder / JAAS_FILE}",
                "-cp",
                self._class_path,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(node.folder / "zoo.cfg"),
            ]
        )


@contextlib.contextmanager
def dev_zookeeper(
    *,
    nodes: int = 1,
    base_port: int = 0,
    data_dir: Path | None = None,
    security: DevSecurity | None = None,
) -> Iterator[DevZookeeper]:
    """An ensemble for the duration of the block; without `data_dir` its data is temporary."""
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            data_dir = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="zhumq-zookeeper-"))
            )
        ensemble = DevZookeeper.start(data_dir, nodes=nodes, base_port=base_port, security=security)
        stack.callback(ensemble.stop)
        yield ensemble


def find_class_path() -> str:
    """The class path of ZooKeeper and its dependencies, from PySpark's jars."""
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise DevZookeeperFailed(
            "the development ZooKeeper comes with PySpark: `pip install pyspark`"
        )
    folder = Path(package.origin).parent / "jars"
    jars = [str(jar) for pattern in (*_JARS, *_MORE_JARS) for jar in sorted(folder.glob(pattern))]
    if not any(Path(jar).name.startswith("zookeeper-") for jar in jars):
        raise DevZookeeperFailed(
            f"there is no ZooKeeper jar in {folder}: `pip install --force-reinstall pyspark`"
        )
    return ":".join(jars)


def _client_ports(count: int, base_port: int) -> list[int]:
    if base_port == 0:
        return free_ports(count)
    ports = list(range(base_port, base_port + count))
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError) as reason:
                why = getattr(reason, "strerror", None) or str(reason)
                raise DevZookeeperFailed(
                    f"cannot listen on {HOST}:{port}: {why}; choose another with --port"
                ) from None
    return ports


def _write_files(
    node: ZookeeperNode, ports: list[int], members: list[int], security: DevSecurity
) -> None:
    data = node.folder / "data"
    try:
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{node.number}\n")
        (node.folder / "zoo.cfg").write_text(_zoo_cfg(node, data, ports, members, security))
        jaas = node.folder / JAAS_FILE
        jaas.touch(mode=0o600)
        jaas.write_text(_jaas(security.users) if security.users else "")
        (node.folder / "log4j2.properties").write_text(_log4j2(node.folder / "zookeeper.log"))
    except OSError as reason:
        raise DevZookeeperFailed(
            f"cannot write to {node.folder}: {reason.strerror}; choose another with --data-dir"
        ) from None


def _zoo_cfg(
    node: ZookeeperNode,
    data: Path,
    ports: list[int],
    members: list[int],
    security: DevSecurity,
) -> str:
    lines = [
        f"tickTime={TICK_MS}",
        "initLimit=20",
        "syncLimit=10",
        f"maxSessionTimeout={SESSION_MS_MAX}",
        "maxClientCnxns=0",
        f"dataDir={data}",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr",
    ]
    if len(ports) == 1:
        lines += [f"clientPortAddress={HOST}", f"clientPort={node.port}"]
    else:
        # | number = host : quorum port : election port ; client address |
        lines += [
            f"server.{index + 1}={HOST}:{members[2 * index]}:{members[2 * index + 1]};{HOST}:{port}"
            for index, port in enumerate(ports)
        ]
    return "\n".join([*lines, *_security_lines(node, security)]) + "\n"


def _security_lines(node: ZookeeperNode, security: DevSecurity) -> list[str]:
    lines = []
    if node.secure_port is not None:
        lines += [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={node.secure_port}",
            f"secureClientPortAddress={HOST}",
            f"ssl.keyStore.location={security.keystore}",
            "ssl.keyStore.type=PEM",
            f"ssl.clientAuth={'want' if security.truststore else 'none'}",
        ]
        # ZooKeeper needs one, even if it asks for no certificate.
        lines += [
            f"ssl.trustStore.location={security.truststore or security.keystore}",
            "ssl.trustStore.type=PEM",
            "ssl.hostnameVerification=false",  # the certificate of a client names no host
        ]
    if security.users:
        lines.append(
            "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        )
    return lines


def _jaas(users: Mapping[str, str]) -> str:
    entries = "\n".join(f'  user_{name}="{password}"' for name, password in users.items())
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    return f"Server {{\n  {module} required\n{entries};\n}};\n"


def _log4j2(path: Path) -> str:
    lines = [
        "status = off",
        "appender.file.type = File",
        "appender.file.name = file",
        f"appender.file.fileName = {path}",
        "appender.file.layout.type = PatternLayout",
        "appender.file.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n",
        "rootLogger.level = info",
        "rootLogger.appenderRef.file.ref = file",
    ]
    return "\n".join(lines) + "\n"
