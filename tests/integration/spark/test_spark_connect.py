"""The same pipeline file on this machine, on a standalone cluster, and on a server of Spark Connect."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("grpc_status")  # what Spark Connect's client needs

from chaos.spark_cluster import connect_server, standalone_cluster
from chaos.spark_driver import Driver
from sink_support import committed
from spark_support import create_topic, produce, wait_until

from zhumq.testing.process import BrokerProcess, broker_process

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

ROWS = 500
PARTITIONS = 2
RUN_SECONDS_MAX = 300.0
SETTINGS = {"transaction.two.phase.commit.enable": "true"}
PIPELINE = """\
name: large-orders
trigger: available-now
parameters: {out: large}
sources:
  orders: {topic: orders}
steps:
  - {name: parsed, parse: orders, format: json, schema: "id BIGINT, amount DOUBLE"}
  - name: good
    expect: parsed
    rules:
      - {name: has_amount, rule: amount IS NOT NULL, action: drop}
  - {name: large, sql: "SELECT id, amount FROM good WHERE amount > 10"}
  - {name: doubled, python: "doubling_steps:doubled", inputs: [large]}
sinks:
  out:
    from: doubled
    topic: ${out}
    key: CAST(id AS STRING)
    options: {exactlyOnce: "true"}
dead_letters: {topic: "${out}.dlq"}
"""
# Runs in the Python of the executors, which have to get the module.
MODULE = """\
import pyarrow as pa


def doubled(rows):
    def twice(batches):
        for batch in batches:
            amounts = [2 * each for each in batch.column("amount").to_pylist()]
            yield pa.RecordBatch.from_arrays([batch.column("id"), pa.array(amounts)], names=["id", "amount"])

    return rows.mapInArrow(twice, "id BIGINT, amount DOUBLE")
"""


def write_file(folder: Path) -> Path:
    (folder / "doubling_steps.py").write_text(MODULE)
    file = folder / "large.yml"
    file.write_text(PIPELINE)
    return file


def send_orders(process: BrokerProcess, first: int) -> None:
    values = [json.dumps({"id": each, "amount": float(each % 100)}).encode() for each in range(first, first + ROWS)]  # fmt: skip
    for partition in range(PARTITIONS):
        produce(process.bootstrap, "orders", values[partition::PARTITIONS], partition=partition)
    produce(process.bootstrap, "orders", [b"{", b'{"id": 1}'])


def expected(rows: int) -> Counter[tuple[int, float]]:
    return Counter((each, 2.0 * (each % 100)) for each in range(rows) if each % 100 > 10)


def found(process: BrokerProcess, topic: str) -> Counter[tuple[int, float]]:
    rows = map(json.loads, committed(process.bootstrap, topic))
    return Counter((each["id"], each["amount"]) for each in rows)


def words_of_run(file: Path, master: str, process: BrokerProcess, folder: Path, out: str) -> list[str]:  # fmt: skip
    return [
        str(file), "--master", master, "--bootstrap", process.bootstrap, "--set", f"out={out}",
        "--state-dir", str(folder / f"state-{out}"), "--checkpoints", f"file://{folder}/checkpoints-{out}",
    ]  # fmt: skip


def test_a_file_gives_the_same_on_every_kind_of_master(tmp_path: Path) -> None:
    file = write_file(tmp_path)
    with (
        broker_process(tmp_path / "data", settings=SETTINGS) as process,
        standalone_cluster(tmp_path) as cluster,
        connect_server(tmp_path, master="local[2]") as connect,
    ):
        create_topic(process.bootstrap, "orders", PARTITIONS)
        masters = {"here": "local[2]", "standalone": cluster.master, "connect": connect}
        for topic in masters:
            create_topic(process.bootstrap, topic, PARTITIONS)
            create_topic(process.bootstrap, f"{topic}.dlq", 1)
        for times in (1, 2):  # the second run goes on where the first one ended
            send_orders(process, (times - 1) * ROWS)
            for out, master in masters.items():
                words = words_of_run(file, master, process, tmp_path, out)
                done = subprocess.run(
                    [sys.executable, "-m", "zhumq", "pipeline", "run", *words],
                    capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX,
                )  # fmt: skip
                assert done.returncode == 0, f"{out}: {done.stdout}\n{done.stderr}"
                assert f"{ROWS + 2} rows in" in done.stdout, done.stdout
                assert found(process, out) == expected(times * ROWS), out
                assert len(committed(process.bootstrap, f"{out}.dlq")) == times


def test_a_killed_client_of_a_server_repeats_nothing(tmp_path: Path) -> None:
    file = write_file(tmp_path)
    file.write_text(PIPELINE.replace("available-now", "500ms"))
    log = tmp_path / "client.log"
    with (
        broker_process(tmp_path / "data", settings=SETTINGS) as process,
        connect_server(tmp_path, master="local[2]") as connect,
    ):
        for topic in ("orders", "large", "large.dlq"):
            create_topic(process.bootstrap, topic, PARTITIONS)
        words = words_of_run(file, connect, process, tmp_path, "large")
        for times in (1, 2):
            client = Driver(words, log)
            try:
                wait_until(
                    lambda runs=times: log.read_text().count(": running") == runs,
                    f"the start of run {times}: {log}",
                    seconds=RUN_SECONDS_MAX,
                )
                send_orders(process, (times - 1) * ROWS)
                wait_until(
                    lambda rows=times * ROWS: found(process, "large") == expected(rows),
                    f"the rows of {times} runs: {log}",
                    seconds=RUN_SECONDS_MAX,
                )
                if times == 1:
                    client.kill("all")  # the server goes on until the next client takes over
                else:
                    client.ask_to_stop()
                    assert client.wait(RUN_SECONDS_MAX) == 0, log.read_text()[-4000:]
            finally:
                client.end()
        assert found(process, "large") == expected(2 * ROWS)
