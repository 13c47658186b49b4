"""Runs librdkafka's own test programs against a broker, one process per test number."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from conformance.verdict import Exclusion, is_excluded, read_exclusions

WAIT_S = 300  # for one test number; the runner has shorter deadlines of its own
DECLARATION = re.compile(r"(?P<name>\w+),\s*(?P<flags>[^,)]*)(?P<rest>.*)", re.DOTALL)


# Large tests run a process per sub-test, so that one unsupported API does not hide the others.
SPLIT = {"0081_admin": "0081-admin.c", "0142_reauthentication": "0142-reauthentication.c"}
NOT_QUICK = {"0082", "0142"}  # leave themselves out in quick mode
# Tests that need a broker with users and an authorizer, by the listener that they use, or three brokers.
AUTHORIZER, SASL, CLUSTER = "authorizer", "sasl", "cluster"
PLACES = {
    "0103_*": CLUSTER,
    "0081_admin/do_test_*Acls": AUTHORIZER,
    "0081_admin/do_test_UserScramCredentials": AUTHORIZER,
    "0109_*": AUTHORIZER,
    "0115_*": AUTHORIZER,
    "0119_*": AUTHORIZER,
    "0135_*": SASL,
    "0142_*": SASL,
}
SUB_TEST = re.compile(r"\bvoid\s+(do_test_\w+)\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    name: str  # as the runner knows it, then "/" and the sub-test where the test is split
    scenario: str

    @property
    def unit(self) -> tuple[str, str, str]:
        """What one process runs: a test number in a scenario, or a sub-test of it."""
        whole, _, sub_test = self.name.partition("/")
        return (whole[:4], self.scenario, sub_test)


def declared_tests(source: Path) -> list[Test]:
    """The tests of the runner's table that talk to a broker: neither local (mock cluster) nor by hand."""
    tests = []
    table = source.read_text().split("struct test tests[]", 1)[1].split("{NULL}};", 1)[0]
    for declaration in table.split("_TEST(")[1:]:
        found = DECLARATION.match(declaration)
        if not found or "TEST_F_LOCAL" in found["flags"] or "TEST_F_MANUAL" in found["flags"]:
            continue
        name = found["name"]
        scenario = "noautocreate" if '"noautocreate"' in found["rest"] else "default"
        names = [name]
        if name in SPLIT:
            sub_tests = SUB_TEST.findall((source.parent / SPLIT[name]).read_text())
            # Without the one that calls all the others.
            names = [
                f"{name}/{each}" for each in dict.fromkeys(sub_tests) if each != "do_test_apis"
            ]
        for each in names:
            places = (place for test, place in PLACES.items() if fnmatchcase(each, test))
            tests.append(Test(name=each, scenario=next(places, scenario)))
    return tests


def configuration(scenario: str, bootstrap: str) -> str:
    """The file test.conf."""
    lines = [
        f"metadata.broker.list={bootstrap}",
        "test.topic.random=true",
        "broker.address.family=v4",
    ]
    if scenario == SASL:
        user, password = os.environ["SASL_USER"], os.environ["SASL_PASSWORD"]
        lines += [
            "security.protocol=sasl_ssl", f"ssl.ca.location={os.environ['CA']}",
            "sasl.mechanism=SCRAM-SHA-512", f"sasl.username={user}", f"sasl.password={password}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def run_unit(
    unit: tuple[str, str, str], names: set[str], *, program: Path, bootstrap: str, work: Path
) -> dict[str, str]:
    """Run one unit in its own process; returns the status of each of its test names."""
    number, scenario, sub_test = unit
    folder = work / "-".join(filter(None, unit))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.conf").write_text(configuration(scenario, bootstrap))
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "TESTS": number,
        "TEST_KAFKA_VERSION": "4.3.0.0",
        "TEST_REPORT": str(report),
        "TEST_CONSUMER_GROUP_PROTOCOL": "classic",
        "RDKAFKA_TEST_CONF": str(folder / "test.conf"),
        "BROKERS": bootstrap,
        "LD_LIBRARY_PATH": f"{program.parent.parent}/src:{program.parent.parent}/src-cpp",
    }
    if scenario == AUTHORIZER:
        environment["CI"] = "1"  # longer deadlines: the tests start kafka-acls, which takes a while
    quick = [] if number in NOT_QUICK else ["-Q"]
    if sub_test:
        environment["SUBTESTS"] = f"{sub_test}:"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(program),
                "-p1",
                "-L",
                "-K",
                "-s",
                "default" if scenario in (AUTHORIZER, SASL, CLUSTER) else scenario,
                *quick,
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=program.parent,
            start_new_session=True,
        )
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    states: dict[str, str] = {}
    if report.exists():
        states = {
            name: each["state"] for name, each in json.loads(report.read_text())["tests"].items()
        }
    if sub_test and f"[ {sub_test}:" not in (folder / "log").read_text(errors="replace"):
        return dict.fromkeys(names, "SKIP")  # its own version or quick-mode rule left it out
    words = {"PASSED": "PASS", "SKIPPED": "SKIP"}
    return {
        name: words.get(states.get(name.partition("/")[0], "no report"), "FAIL") for name in names
    }


def grouped(tests: Iterable[Test]) -> dict[tuple[str, str, str], set[str]]:
    groups: dict[tuple[str, str, str], set[str]] = {}
    for test in tests:
        groups.setdefault(test.unit, set()).add(test.name)
    return groups


def run_all(
    tests: list[Test], *, program: Path, bootstraps: dict[str, str], work: Path, jobs: int
) -> dict[str, str]:
    """Run the tests in parallel, since most of them wait; then run the failed ones again, alone."""
    results: dict[str, str] = {}

    def run_one(group: tuple[tuple[str, str, str], set[str]]) -> None:
        unit, names = group
        outcome = run_unit(unit, names, program=program, bootstrap=bootstraps[unit[1]], work=work)
        results.update(outcome)
        for name, status in sorted(outcome.items()):
            print(f"  {status} {name}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run_one, grouped(tests).items()))
    failed = [test for test in tests if results[test.name] == "FAIL"]
    for group in grouped(failed).items():
        print(f"  again, alone: {', '.join(sorted(group[1]))}", file=sys.stderr, flush=True)
        run_one(group)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--bootstrap-noautocreate", default="")
    parser.add_argument("--bootstrap-authorizer", default="")
    parser.add_argument("--bootstrap-sasl-ssl", default="")
    parser.add_argument("--bootstrap-cluster", default="")
    parser.add_argument("--exclusions", type=Path, required=True)
    parser.add_argument("--run-excluded", type=int, default=0)
    parser.add_argument("--only", default="", help="comma-separated beginnings of test names")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()

    exclusions: list[Exclusion] = read_exclusions(arguments.exclusions)
    bootstraps = {
        "default": arguments.bootstrap,
        "noautocreate": arguments.bootstrap_noautocreate,
        AUTHORIZER: arguments.bootstrap_authorizer,
        SASL: arguments.bootstrap_sasl_ssl,
        CLUSTER: arguments.bootstrap_cluster,
    }
    tests = [
        test
        for test in declared_tests(arguments.program.parent / "test.c")
        if test.name.startswith(tuple(arguments.only.split(",")))
    ]
    chosen = [
        test
        for test in tests
        if bootstraps[test.scenario]
        and (arguments.run_excluded or not is_excluded(test.name, exclusions))
    ]
    results = run_all(
        chosen,
        program=arguments.program,
        bootstraps=bootstraps,
        work=arguments.work,
        jobs=arguments.jobs,
    )
    for test in tests:
        unrun = "EXCLUDED" if is_excluded(test.name, exclusions) else "SKIP"
        print(f"{results.get(test.name, unrun)}\t{test.name}")


if __name__ == "__main__":
    main()
