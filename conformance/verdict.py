"""Compares the results of one suite with its exclusions, each of which needs a reason."""

import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    pattern: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    passed: list[str]
    failed: list[str]
    skipped: list[str]
    excluded: list[str]
    excluded_but_passing: list[str]


def read_exclusions(path: Path) -> list[Exclusion]:
    """One test id or shell pattern per line, then `#` and the reason; a line without a reason is an error."""
    exclusions = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, hash_sign, reason = line.partition("#")
        if not hash_sign or not reason.strip():
            raise SystemExit(f"{path.name}:{number}: an exclusion needs a reason after '#'")
        exclusions.append(Exclusion(pattern=pattern.strip(), reason=reason.strip()))
    return exclusions


def is_excluded(test: str, exclusions: list[Exclusion]) -> bool:
    # Test ids may hold brackets (pytest parameters), which a shell pattern would read as a class.
    return any(
        test == each.pattern or fnmatchcase(test, each.pattern.replace("[", "[[]"))
        for each in exclusions
    )


def judge(results: list[tuple[str, str]], exclusions: list[Exclusion]) -> Verdict:
    """`results` are (PASS | FAIL | SKIP | EXCLUDED, test id); the last result of a test counts."""
    last = {test: status for status, test in results}
    inside = {test: status for test, status in last.items() if not is_excluded(test, exclusions)}
    outside = {test: status for test, status in last.items() if test not in inside}
    return Verdict(
        passed=[test for test, status in inside.items() if status == "PASS"],
        failed=[test for test, status in inside.items() if status == "FAIL"],
        skipped=[test for test, status in inside.items() if status == "SKIP"],
        excluded=list(outside),
        excluded_but_passing=[test for test, status in outside.items() if status == "PASS"],
    )


def main(suite: str, results_path: Path, exclusions_path: Path) -> int:
    exclusions = read_exclusions(exclusions_path)
    lines = results_path.read_text().splitlines() if results_path.exists() else []
    results = [(status, test) for status, _, test in (line.partition("\t") for line in lines)]
    found = judge(results, exclusions)
    for test in found.skipped:
        print(f"{suite}: skipped by the suite itself: {test}")
    for test in found.excluded_but_passing:
        print(f"{suite}: excluded, yet it passes: {test}")
    for test in found.failed:
        print(f"{suite}: FAILED {test}")
    skipped = f", {len(found.skipped)} skipped" if found.skipped else ""
    print(
        f"{suite}: {len(found.passed)} passed, {len(found.failed)} failed,"
        f" {len(found.excluded)} excluded{skipped}"
    )
    if not found.passed:
        print(f"{suite}: no test passed", file=sys.stderr)
    return 0 if found.passed and not found.failed else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
