"""Spark over SASL_SSL: source, sink and pipelines on a broker with users, and secrets that appear nowhere."""

import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pipeline_support import Pipelines
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from zhumq import Admin, Consumer
from zhumq.client.errors import AuthenticationFailed
from zhumq.testing.secured import SecuredBroker, secured_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 200
# A task would wait five minutes for its rows otherwise.
REFUSED_SECONDS_MAX = 60.0

PIPELINE = """\
name: secured
trigger: available-now
security:
  security.protocol: SASL_SSL
  ssl.truststore.location: {authority}
  sasl.mechanism: SCRAM-SHA-512
  sasl.username: alice
  sasl.password: ${{file:{folder}/alice.password}}
sources:
  records: {{topic: {topic}}}
sinks:
  copy: {{topic: {topic}-copy}}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as started:
        yield started


@pytest.fixture
def options(running: SecuredBroker, tmp_path: Path) -> dict[str, str]:
    """Alice's options, with her password by reference."""
    password = tmp_path / "alice.password"
    password.touch(mode=0o600)
    password.write_text(running.security.password.reveal())
    return {
        "kafka.bootstrap.servers": running.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": str(running.authority),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="alice" password="${{file:{password}}}";',
    }


def create(running: SecuredBroker, *topics: str) -> None:
    with Admin(running.bootstrap, security=running.security) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=2)


def rows(spark: SparkSession) -> Any:
    return spark.range(ROWS).select(col("id").cast("string").alias("value"))


def count(spark: SparkSession, options: dict[str, str], topic: str) -> int:
    return spark.read.format("zhumq").options(**options, subscribe=topic).load().count()


def files_with(folder: Path, secret: str) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("is_literal", [False, True], ids=["by reference", "written out"])
def test_batches_and_streams_are_read_and_written(
    spark: SparkSession,
    running: SecuredBroker,
    options: dict[str, str],
    tmp_path: Path,
    is_literal: bool,
) -> None:
    secret = running.security.password.reveal()
    topic = f"batch-{is_literal}".lower()
    create(running, topic, f"{topic}-copy")
    if is_literal:
        jaas = f'x.ScramLoginModule required username="alice" password="{secret}";'
        options["kafka.sasl.jaas.config"] = jaas
    rows(spark).write.format("zhumq").options(**options, topic=topic).mode("append").save()
    frame = spark.read.format("zhumq").options(**options, subscribe=topic).load()
    assert frame.count() == ROWS
    checkpoint = tmp_path / "checkpoint"
    query = (
        spark.readStream.format("zhumq")
        .options(**options, subscribe=topic, startingOffsets="earliest")
        .load()
        .select("value")
        .writeStream.format("zhumq")
        .options(**options, topic=f"{topic}-copy", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert count(spark, options, f"{topic}-copy") == ROWS
    with redirect_stdout(StringIO()) as plans:
        frame.explain("extended")
        query.explain(True)
    assert "zhumq" in plans.getvalue()
    assert secret not in plans.getvalue() + str(query.lastProgress)
    assert files_with(checkpoint, secret) == []


@pytest.mark.thorough
def test_a_pipeline_runs_with_secrets_by_reference(
    spark: SparkSession, running: SecuredBroker, options: dict[str, str], tmp_path: Path
) -> None:
    create(running, "orders")
    rows(spark).write.format("zhumq").options(**options, topic="orders").mode("append").save()
    pipelines = Pipelines(spark, running.bootstrap, tmp_path)
    text = PIPELINE.format(authority=running.authority, folder=tmp_path, topic="orders")
    pipelines.run(pipelines.write("secured.yml", text))
    assert count(spark, options, "orders-copy") == ROWS
    with Consumer("orders-copy", bootstrap=running.bootstrap, security=running.security) as copy:
        assert next(iter(copy)).value is not None
    secret = running.security.password.reveal()
    assert files_with(tmp_path / "state", secret) == []


@pytest.mark.parametrize("use", ["read", "write"])
def test_a_wrong_password_fails_within_seconds(
    spark: SparkSession, running: SecuredBroker, options: dict[str, str], use: str
) -> None:
    options["kafka.sasl.jaas.config"] = (
        'x.ScramLoginModule required username="alice" password="wrong";'
    )

    def write() -> None:
        rows(spark).write.format("zhumq").options(**options, topic="any").mode("append").save()

    def read() -> None:
        count(spark, options, "any")

    began = time.monotonic()
    with pytest.raises(Exception, match="the broker refused the user 'alice'"):
        (read if use == "read" else write)()
    assert time.monotonic() - began < REFUSED_SECONDS_MAX


def test_a_pipeline_with_a_wrong_password_fails_before_any_task(
    spark: SparkSession, running: SecuredBroker, options: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "alice.password").write_text("wrong")
    pipelines = Pipelines(spark, running.bootstrap, tmp_path)
    text = PIPELINE.format(authority=running.authority, folder=tmp_path, topic="orders")
    with pytest.raises(AuthenticationFailed, match="refused the user 'alice'"):
        pipelines.run(pipelines.write("secured.yml", text))
