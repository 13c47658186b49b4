"""Uses what an extra of the installed package is for: `python tools/package_smoke.py EXTRA`, by the Python of any environment.

It imports nothing of this repository but the installed package, and fails if that is not where `zhumq` comes from.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import zhumq
from zhumq.testing.process import NO_WATERMARKS, broker_process

REPOSITORY: Final = Path(__file__).resolve().parent.parent
SECONDS_MAX: Final = 120
ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}],
}


def command(*arguments: str, text: str = "", code: int = 0) -> str:
    """Run `zhumq`; what it prints, on stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "zhumq", *arguments],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    if done.returncode != code:
        sys.exit(f"zhumq {' '.join(arguments)}: code {done.returncode}: {done.stdout}")
    return done.stdout


def ask(url: str, body: object = None) -> str:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
        return str(answer.read().decode())


def core(folder: Path) -> None:
    """A broker, and the commands against it."""
    assert command("--version") == f"zhumq {zhumq.__version__}\n"
    with broker_process(folder / "data", settings=NO_WATERMARKS) as broker:
        command("topic", "create", "t", "--bootstrap", broker.bootstrap)
        command("produce", "t", "--bootstrap", broker.bootstrap, text="one\ntwo\n")
        read = command("consume", "t", "--until-end", "--bootstrap", broker.bootstrap)
        assert "one" in read, read
        assert "two" in read, read
        assert broker.stop() == 0


def avro(_: Path) -> None:
    assert_round_trip(zhumq.Avro(ORDER), {"id": 7})


def protobuf(_: Path) -> None:
    from google.protobuf.wrappers_pb2 import StringValue

    assert_round_trip(zhumq.Protobuf(StringValue), StringValue(value="x"))


def assert_round_trip(serializer: Any, value: object) -> None:
    assert serializer.deserialize("t", serializer.serialize("t", value)) == value


def cluster(folder: Path) -> None:
    """Without ZooKeeper a broker says that none answers, and not that a package is missing."""
    arguments = ["start", "--zookeeper", "127.0.0.1:1", "--data-dir", str(folder / "data")]
    arguments += ["--set", "zookeeper.connection.timeout.ms=2000"]
    printed = command(*arguments, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", code=1)
    assert "no ZooKeeper answers at 127.0.0.1:1" in printed, printed


def with_web(folder: Path, use: Callable[[str], None]) -> None:
    options = ["--web", "127.0.0.1:0"]
    with broker_process(folder / "data", settings=NO_WATERMARKS, options=options) as broker:
        use(broker.ready_line.partition(" web=")[2].split()[0])


def console(folder: Path) -> None:
    """The page of the console, its modules, and the REST API."""

    def use(url: str) -> None:
        assert "<!doctype html>" in ask(f"{url}/").lower()
        assert "export" in ask(f"{url}/console/router.js")
        assert json.loads(ask(f"{url}/api/v1/topics")) is not None

    with_web(folder, use)


def registry(folder: Path) -> None:
    def use(url: str) -> None:
        schema = {"schema": json.dumps(ORDER)}
        assert json.loads(ask(f"{url}/registry/subjects/orders-value/versions", schema))["id"] > 0

    with_web(folder, use)


def push(folder: Path) -> None:
    with broker_process(folder / "data", settings=NO_WATERMARKS) as broker:
        assert broker.push != "off"
        with zhumq.Producer(broker.bootstrap) as producer:
            producer.send("t", b"pushed")
        with zhumq.Consumer(
            "t", group="g", mode="ptp", bootstrap=broker.bootstrap, push=broker.push
        ) as consumer:
            assert next(iter(consumer)).value == b"pushed"


def security(folder: Path) -> None:
    command("tls", "dev", str(folder / "tls"))
    assert list((folder / "tls").glob("*.p*"))


def tracing(_: Path) -> None:
    assert zhumq.Tracing() is not None


def spark(_: Path) -> None:
    """The pipelines that come with the package, and the data source that Spark finds by its name."""
    import pyspark_zhumq

    assert pyspark_zhumq.__file__
    names = {each["name"] for each in json.loads(command("pipeline", "list", "--json"))}
    assert names >= {"archive", "inspect", "replay", "audit"}, names


def delta(folder: Path) -> None:
    import deltalake
    import pyarrow as pa  # type: ignore[import-untyped]

    for number in range(2):
        rows = pa.table({"x": [number]})
        deltalake.write_deltalake(str(folder / "table"), rows, mode="append")
    (done,) = json.loads(command("pipeline", "upkeep", str(folder / "table"), "--json"))
    assert (done["files"], done["merged"]) == (1, 2)


def iceberg(folder: Path) -> None:
    """The sink needs Spark as well, of another extra; its catalogs and commits do not."""
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    options = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}
    catalog = load_catalog("default", **options)
    catalog.create_namespace("shop")
    rows = pa.table({"x": [1]})
    catalog.create_table("shop.orders", rows.schema).append(rows)
    assert catalog.load_table("shop.orders").scan().to_arrow() == rows
    catalog.close()


def docs(_: Path) -> None:
    import mkdocs

    assert mkdocs.__version__


def sql(_: Path) -> None:
    """The prompt needs Spark as well, of another extra; what it completes and keeps needs neither."""
    import prompt_toolkit

    assert prompt_toolkit.__version__
    command("sql", "--help")


def ui(_: Path) -> None:
    """Without a terminal it cannot do more than say what it would do."""
    import zhumq.ui.app

    assert zhumq.ui.app.__file__
    command("ui", "--help")


SMOKES: Final[dict[str, Callable[[Path], None]]] = {
    "core": core,
    "avro": avro,
    "cluster": cluster,
    "console": console,
    "delta": delta,
    "docs": docs,
    "iceberg": iceberg,
    "protobuf": protobuf,
    "push": push,
    "registry": registry,
    "security": security,
    "spark": spark,
    "sql": sql,
    "tracing": tracing,
    "ui": ui,
}


def main(extra: str) -> None:
    home = Path(zhumq.__file__).resolve()
    if home.is_relative_to(REPOSITORY / "src"):
        sys.exit(f"zhumq is imported from {home}, and not from an installed package")
    with tempfile.TemporaryDirectory() as folder:
        SMOKES[extra](Path(folder))
    print(f"{extra}: works, with zhumq {zhumq.__version__}")


if __name__ == "__main__":
    main(sys.argv[1])
