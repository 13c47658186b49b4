"""Databases for the tests of JDBC: their drivers, and a PostgreSQL server that is stopped and started."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from spark_support import wait_until

from zhumq.host.ports import free_ports

# `make test` brings them, with Maven.
JARS_FOLDER = Path(__file__).parents[3] / "build" / "jars"
JARS = [JARS_FOLDER / name for name in ("postgresql-42.7.7.jar", "sqlite-jdbc-3.50.3.0.jar")]
PASSWORD_VARIABLE = "ZHUMQ_TEST_DATABASE_PASSWORD"
PASSWORD = "a-secret-of-the-shop"
OWNER = "postgres"  # PostgreSQL does not run as root


def driver_jars() -> Sequence[Path]:
    """The drivers of both databases, as far as they are there."""
    return [jar for jar in JARS if jar.exists()]


def need_drivers() -> None:
    if len(driver_jars()) < len(JARS):
        pytest.skip("the JDBC drivers are not in build/jars: make jdbc")


class PostgresServer:
    """A server with a user `shop`, who needs a password, and a database `shop`."""

    def __init__(self, folder: Path, programs: Path, user: str | None) -> None:
        self._folder = folder
        self._programs = programs
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)
        word = folder / "password"
        word.write_text(PASSWORD)
        if user is not None:
            shutil.chown(word, user)
        self._run(
            "initdb", "-D", str(folder / "data"), "-U", "shop", f"--pwfile={word}", "-A",
            "scram-sha-256", "--no-sync", "-E", "UTF8", "--locale=C",
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres", "-D", self._folder / "data", "-p", str(self.port),
                    "-h", "127.0.0.1", "-k", self._folder, "-F", "-c", "max_connections=30",
                ],
                user=self._user,
                cwd=self._folder,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )  # fmt: skip
        wait_until(lambda: self._answers("select 1"), "PostgreSQL answers")

    def stop(self) -> None:
        """End it at once, as a crash does: transactions that are open are lost."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT, an immediate shutdown
            self._process.wait(60)
            self._process = None

    def query(self, sql: str) -> list[list[str]]:
        """The rows of a query, or nothing of a statement."""
        text = self._psql(sql).stdout
        return [line.split("|") for line in text.splitlines()]

    def _answers(self, sql: str) -> bool:
        return self._psql(sql, check=False).returncode == 0

    def _psql(self, sql: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        words = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", "-d", "postgres"]
        return subprocess.run(
            [*words, "-q", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            timeout=60,
            check=check,
        )

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [self._programs / program, *words],
            user=self._user,
            cwd=self._folder,
            capture_output=True,
            timeout=120,
            check=True,
        )


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this machine's package; skips the test where there is none."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    if programs is None or shutil.which("psql") is None:
        pytest.skip("PostgreSQL is not installed")
    user = OWNER if os.geteuid() == 0 else None
    if user is not None:
        try:
            pwd.getpwnam(user)
        except KeyError:
            pytest.skip("there is no user postgres, and PostgreSQL does not run as root")
    folder = Path(tempfile.mkdtemp(prefix="zhumq-postgres-"))
    if user is not None:
        shutil.chown(folder, user)
    try:
        server = PostgresServer(folder, programs, user)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
