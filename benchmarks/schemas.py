"""A registry of many schemas: how long a web process takes to read them at its start, and what memory they take."""

import argparse
import json
import re
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from benchmarks.web_process import web_process
from zhumq.testing.process import broker_process

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
FIELDS: Final = 10  # of a record: its schema has about 700 characters
VERSIONS: Final = 5  # of a subject
SAMPLES: Final = 500


def schema(subject: int, version: int) -> str:
    """A record that each version adds a field with a default to."""
    fields: list[dict[str, Any]] = [
        {"name": f"field_{each}", "type": ["null", "string"], "default": None, "doc": "A field."}
        for each in range(FIELDS + version)
    ]
    return json.dumps({"type": "record", "name": f"Record{subject}", "fields": fields})


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": MEDIA_TYPE})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def resident_mb(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found.group(1)) / 1024


def run(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder, broker_process(Path(folder) / "data") as broker:
        with web_process(broker.bootstrap) as (root, _):
            url = f"{root}/registry"
            begin = time.perf_counter()
            for number in range(count):
                subject, version = divmod(number, VERSIONS)
                body = {"schema": schema(subject, version)}
                ask(f"{url}/subjects/subject-{subject}/versions", body)
            seconds = time.perf_counter() - begin
            print(f"{count} schemas registered: {seconds:.1f} s, {seconds / count * 1000:.1f} ms each")  # fmt: skip
        with web_process(broker.bootstrap) as (root, process):
            url = f"{root}/registry"
            ask(f"{url}/schemas/types")
            before = resident_mb(process)
            begin = time.perf_counter()
            subjects = ask(f"{url}/subjects")
            first = time.perf_counter() - begin
            after = resident_mb(process)
            assert len(subjects) == -(-count // VERSIONS)
            begin = time.perf_counter()
            for number in range(SAMPLES):
                ask(f"{url}/schemas/ids/{number * count // SAMPLES + 1}")
            each = (time.perf_counter() - begin) / SAMPLES
            print(f"the first answer, for which the log is read: {first:.2f} s")
            print(f"memory (VmRSS): {before:.0f} MB before, {after:.0f} MB after")
            print(f"a schema by its id: {each * 1000:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=10_000)
    run(parser.parse_args().schemas)


if __name__ == "__main__":
    main()
