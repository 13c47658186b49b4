"""Every code block of the docs runs, here or in a test of its page, or says why it does not."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import DOCS, REPOSITORY, Block, blocks, reader, run_page

from zhumq import Producer
from zhumq.host.ports import free_ports
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

# The tests that run the programs of other pages. Their blocks in sh, which start what the test starts, need a reason.
ELSEWHERE = {
    "client.md": "tests/integration/client/test_client_examples.py",
    "push.md": "tests/integration/client/test_client_examples.py",
    "filters.md": "tests/integration/client/test_client_examples.py",
    "lookup.md": "tests/integration/client/test_client_examples.py",
    "rest.md": "tests/integration/web/test_rest_docs.py",
    "schemas.md": "tests/integration/web/test_schemas_docs.py",
}
PATTERNS = "tests/integration/test_patterns.py"
# These start brokers of their own, or Spark, and take longer.
OWN_BROKER = ["start.md"]
WITH_A_CLUSTER = ["failure_drills.md"]
WITH_SPARK = ["spark.md", "spark_clusters.md", "sql.md"]


def pages() -> list[Path]:
    return sorted([REPOSITORY / "README.md", *DOCS.rglob("*.md")])


def name(page: Path) -> str:
    return page.name if page.parent == REPOSITORY else page.relative_to(DOCS).as_posix()


def is_run_elsewhere(page: Path) -> bool:
    return name(page) in ELSEWHERE or page.parent == DOCS / "patterns"


HERE = [page for page in pages() if blocks(page) and not is_run_elsewhere(page)]
SEPARATE = {*OWN_BROKER, *WITH_A_CLUSTER, *WITH_SPARK}
WITH_THE_BROKER = [page for page in HERE if name(page) not in SEPARATE]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as running_:
        with Producer(running_.bootstrap) as producer:  # for the pages that read
            producer.send("orders", b"a chair", key=b"customer-1")
        yield running_


@pytest.fixture(scope="module")
def addresses(running: RunningBroker) -> Iterator[dict[str, str]]:
    with rest_api(WebConfig(bootstrap=running.bootstrap)) as url:
        yield {
            "127.0.0.1:9092": running.bootstrap,
            "127.0.0.1:8080": url.removeprefix("http://"),
            "127.0.0.1:9080": running.http,
        }


def report(page: Path, ran: int, unrun: int) -> None:
    print(f"{name(page)}: {ran} blocks ran, {unrun} have a reason not to")
    assert ran + unrun == len(blocks(page))


@pytest.mark.thorough
@pytest.mark.parametrize("page", WITH_THE_BROKER, ids=name)
def test_the_blocks_of_a_page_run(
    running: RunningBroker, addresses: dict[str, str], page: Path, tmp_path: Path
) -> None:
    with reader(tmp_path, running.bootstrap, addresses) as by:
        report(page, *run_page(page, by))


def own_addresses() -> tuple[str, dict[str, str]]:
    """Free ports for a page that starts its own broker."""
    kafka, web, http = (f"127.0.0.1:{port}" for port in free_ports(3))
    return kafka, {"127.0.0.1:9092": kafka, "127.0.0.1:8080": web, "127.0.0.1:9080": http}


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", OWN_BROKER)
def test_a_page_with_a_broker_of_its_own_runs(page: str, tmp_path: Path) -> None:
    bootstrap, meant = own_addresses()
    with reader(tmp_path, bootstrap, meant) as by:
        report(DOCS / page, *run_page(DOCS / page, by))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", WITH_SPARK)
def test_a_page_with_spark_runs(
    running: RunningBroker, addresses: dict[str, str], page: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    with reader(tmp_path, running.bootstrap, addresses) as by:
        report(DOCS / page, *run_page(DOCS / page, by))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", WITH_A_CLUSTER)
def test_a_page_with_a_cluster_runs(page: str, tmp_path: Path) -> None:
    pytest.importorskip("kazoo")
    pytest.importorskip("pyspark")
    mounted = tmp_path / "small"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount the small disk of the drills")
    subprocess.run(["umount", str(mounted)], check=True)
    mounted.rmdir()
    kafka = adjacent_ports()
    http = adjacent_ports()
    meant = {
        **{f"127.0.0.1:{9092 + index}": f"127.0.0.1:{kafka + index}" for index in range(3)},
        **{f"127.0.0.1:{9080 + index}": f"127.0.0.1:{http + index}" for index in range(3)},
        "--nodes 3": f"--nodes 3 --port {kafka} --http-port {http}",
        "127.0.0.1:9192": f"127.0.0.1:{free_ports(1)[0]}",
        "127.0.0.1:9180": f"127.0.0.1:{free_ports(1)[0]}",
    }
    with reader(tmp_path, f"127.0.0.1:{kafka}", meant) as by:
        try:
            report(DOCS / page, *run_page(DOCS / page, by))
        finally:
            by.end()
            subprocess.run(["umount", "-l", str(mounted)], capture_output=True, check=False)


def adjacent_ports() -> int:
    """The first of three adjacent free ports."""
    ports = sorted(free_ports(20))
    return next(port for port in ports if {port + 1, port + 2} <= set(ports))


def test_every_page_with_code_is_run_by_a_test() -> None:
    for page, test in ELSEWHERE.items():
        assert page.removesuffix(".md") in (REPOSITORY / test).read_text()
    assert "docs/patterns" in (REPOSITORY / PATTERNS).read_text()
    for listed in SEPARATE:
        assert listed in {name(page) for page in HERE}, f"docs/{listed} has no code any more"


def test_every_block_that_does_not_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    unrun: list[str] = []
    without_reason: list[str] = []
    total = 0
    for page in pages():
        for block in blocks(page):
            total += 1
            if block.marker == "not run":
                unrun.append(f"{name(page)}:{block.line}: {block.argument}")
            elif is_run_elsewhere(page) and not _is_run_by_its_test(page, block):
                without_reason.append(f"{name(page)}:{block.line}")
    with capsys.disabled():
        print(f"\n{total} code blocks in the docs, {len(unrun)} do not run:")
        print("\n".join(f"  {each}" for each in unrun))
    assert without_reason == []


def _is_run_by_its_test(page: Path, block: Block) -> bool:
    """Tests of pages run their programs, and those of the REST pages what is in bash."""
    return block.language == "python" or (block.language == "bash" and name(page) in ELSEWHERE)


def test_a_block_that_fails_or_prints_something_else_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    tried = {
        "```sh\nfalse\n```\n": "failed with code 1",
        "```python\nraise SystemExit(3)\n```\n": "failed with code 3",
        "```sh\necho one\n```\n\n```text\ntwo\n```\n": "does not print 'two'",
        "<!-- not run: -->\n\n```sh\nfalse\n```\n": "failed with code 1",
    }
    for number, (text, says) in enumerate(tried.items()):
        page.write_text(text)
        folder = tmp_path / str(number)
        folder.mkdir()
        (block,) = blocks(page)
        with reader(folder, "", {}) as by, pytest.raises(AssertionError, match=says):
            by.run(block, "page.md:1")
    page.write_text("<!-- not run: needs a cluster -->\n\n```sh\nfalse\n```\n\n```text\nx\n```\n")
    assert [block.argument for block in blocks(page)] == ["needs a cluster"]
    page.write_text("```sh\necho one; echo two; echo three\n```\n\n```text\none\nth…\n```\n")
    (tmp_path / "last").mkdir()
    with reader(tmp_path / "last", "", {}) as by:
        assert by.run(blocks(page)[0], "page.md:1") == "one\ntwo\nthree\n"
