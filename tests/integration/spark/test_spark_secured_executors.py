"""Secured topics on executors in processes of their own; the secret is in none of what Spark shows and keeps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import secured_driver
from chaos.spark_cluster import standalone_cluster

from zhumq import Admin
from zhumq.testing.secured import secured_broker

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

RUN_SECONDS_MAX = 400.0
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def files_with(folder: Path, text: str) -> list[Path]:
    return [
        path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()
    ]


def test_executors_follow_references_and_nothing_shows_the_secret(tmp_path: Path) -> None:
    spark_folder = tmp_path / "spark"
    spark_folder.mkdir()
    with (
        secured_broker(tmp_path / "secured") as broker,
        standalone_cluster(spark_folder) as cluster,
    ):
        secret = broker.security.password.reveal()
        password_file = tmp_path / "alice.password"
        password_file.touch(mode=0o600)
        password_file.write_text(secret)
        passwords = {"by-reference": f"${{file:{password_file}}}", "written-out": secret}
        with Admin(broker.bootstrap, security=broker.admin_security) as admin:
            for topic in passwords:
                admin.create_topic(topic, partitions=2)
                admin.create_topic(f"{topic}-copy", partitions=2)
        options = {
            topic: {
                "kafka.bootstrap.servers": broker.bootstrap,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.truststore.location": str(broker.authority),
                "kafka.sasl.mechanism": "SCRAM-SHA-512",
                "kafka.sasl.jaas.config": f'{MODULE} username="alice" password="{password}";',
            }
            for topic, password in passwords.items()
        }
        given = tmp_path / "options.json"
        given.write_text(json.dumps(options))
        log = spark_folder / "driver.log"
        with log.open("wb") as output:
            done = subprocess.run(
                [sys.executable, secured_driver.__file__, cluster.master, str(given), str(spark_folder)],
                env=os.environ, stdout=output, stderr=output, timeout=RUN_SECONDS_MAX, check=False,
            )  # fmt: skip
        assert done.returncode == 0, log.read_text()[-4000:]
        assert all(cluster.executors()), f"a worker had nothing to do: {cluster.executors()}"
    pages = list((spark_folder / "pages").iterdir())
    assert len(pages) == len(secured_driver.PAGES) + len(secured_driver.RESOURCES)
    assert files_with(spark_folder / "pages", "zhumq"), "the pages are about this application"
    assert files_with(spark_folder / "events", "zhumq"), "the event log is about this application"
    # Pages, event log, checkpoints, logs of the driver, of the daemons and of the executors.
    assert files_with(spark_folder, secret) == []
