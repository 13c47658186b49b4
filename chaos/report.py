"""The report of a run, as text and as JSON."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.checker import Verdict
from chaos.findings import MEANINGS, Finding
from chaos.nemesis import InjectedFault
from chaos.schedule import KILLS, PARTITIONS, PAUSES
from chaos.serving import Serving
from chaos.write_gaps import Gaps

CLIENT_ERRORS_SHOWN: Final = 6
BEFORE_A_GAP_MS: Final = 15_000  # faults from then on may not be healed yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a run."""

    title: str
    seed: int
    seconds: float
    verdict: Verdict
    findings: tuple[Finding, ...]  # from the history and from all other checks
    injected_faults: Sequence[InjectedFault]
    switches: int
    moves: int
    delayed_requests: int
    client_errors: Counter[str]
    epoch_bumps: int  # how often a producer took a new epoch, which risks duplicates
    write_gaps: Mapping[str, Gaps]  # of each topic
    commit_gaps: Gaps
    switch_gaps: Gaps
    serving: Serving
    bytes_compared: int
    partitions_compared: int
    folder: Path

    @property
    def is_clean(self) -> bool:
        return not self.findings

    def lines(self) -> list[str]:
        verdict = self.verdict
        kinds = Counter(injected.kind for injected in self.injected_faults)
        kills = sum(count for kind, count in kinds.items() if kind in KILLS)
        pauses = sum(count for kind, count in kinds.items() if kind in PAUSES)
        cuts = sum(count for kind, count in kinds.items() if kind in PARTITIONS)
        client_errors = ", ".join(
            f"{name} {count}" for name, count in self.client_errors.most_common(CLIENT_ERRORS_SHOWN)
        )
        lines = [
            f"{self.title}, seed {self.seed}, {self.seconds:.0f} s",
            (
                f"  faults          {len(self.injected_faults)}: {kills} kills, {pauses} pauses, {cuts} partitions"
                f", {len(self.injected_faults) - kills - pauses - cuts} others; {self.switches} mode switches"
                + (f"; {self.moves} moves of replicas" if self.moves else "")
            ),
            *(f"    {count:4d}  {kind}" for kind, count in sorted(kinds.items())),
            (
                f"  sends           {verdict.sends_acknowledged} acknowledged, {verdict.sends_failed}"
                f" failed, {verdict.sends_unknown} unknown"
            ),
            (
                f"  reads           {verdict.values_read} values, {verdict.operations} operations in"
                " the history"
            ),
            f"  commits         {verdict.commits}",
            (
                f"  transactions    {verdict.transactions_committed} committed, {verdict.transactions_aborted} aborted,"
                f" {verdict.transactions_unknown} unknown; {self.delayed_requests} requests delayed"
            ),
            (
                f"  replicas        {self.bytes_compared} bytes of {self.partitions_compared}"
                " partitions compared"
            ),
            *self._gaps(),
            *self._serving(),
            f"  client errors   {client_errors or 'none'}",
            f"  epoch bumps     {self.epoch_bumps} (a producer took a new epoch after an error)",
        ]
        if self.is_clean:
            return [*lines, "  findings        none"]
        lines.append(f"  findings        {len(self.findings)}")
        for finding in self.findings:
            lines += [f"    {finding}", f"      meaning: {MEANINGS[finding.kind]}"]
        return [*lines, f"  kept in         {self.folder}"]

    def _gaps(self) -> list[str]:
        if not self.write_gaps:
            return []  # of a run with transactions
        return [
            "  write gaps      from the kill of a leader, without other faults, to the next acknowledged send",
            *(f"    {topic:12}  {gaps}" for topic, gaps in self.write_gaps.items()),
            *self._long_gaps(),
            f"  commit gaps     {self.commit_gaps} (kill of a group coordinator)",
            f"  switch gaps     {self.switch_gaps} (longest time without an acknowledged send after a mode change)",
        ]

    def _serving(self) -> list[str]:
        serving = self.serving
        if not serving.leaders_asked:
            return []
        return [
            (
                f"  serving         {serving.leaders_asked} leaders asked after the faults, the slowest"
                f" served after {serving.slowest_seconds * 1_000:.0f} ms, {len(serving.late)} too late"
            )
        ]

    def _long_gaps(self) -> list[str]:
        """Long gaps, each with the faults shortly before it and during it."""
        found = [each for gaps in self.write_gaps.values() for each in gaps.long]
        lines = []
        for gap in sorted(found, key=lambda each: each.since_ms):
            span = range(gap.since_ms - BEFORE_A_GAP_MS, gap.since_ms + gap.lasted_ms)
            injected_faults = ", ".join(
                f"{injected.kind} ({injected.target}) at {injected.time_ms / 1_000:.1f} s"
                for injected in self.injected_faults
                if injected.time_ms in span
            )
            lines.append(
                f"      {gap.place}: {gap.lasted_ms} ms from {gap.since_ms / 1_000:.1f} s; {injected_faults}"
            )
        return lines

    def to_json(self) -> str:
        """The report for programs."""
        verdict = self.verdict
        return json.dumps(
            {
                "title": self.title,
                "seed": self.seed,
                "seconds": round(self.seconds, 1),
                "faults": Counter(str(injected.kind) for injected in self.injected_faults),
                "switches": self.switches,
                "moves": self.moves,
                "sends": {
                    "acknowledged": verdict.sends_acknowledged,
                    "failed": verdict.sends_failed,
                    "unknown": verdict.sends_unknown,
                },
                "values_read": verdict.values_read,
                "commits": verdict.commits,
                "transactions": {
                    "committed": verdict.transactions_committed,
                    "aborted": verdict.transactions_aborted,
                    "unknown": verdict.transactions_unknown,
                },
                "delayed_requests": self.delayed_requests,
                "write_gaps_ms": {
                    topic: sorted(gaps.gaps_ms) for topic, gaps in self.write_gaps.items()
                },
                "commit_gaps_ms": sorted(self.commit_gaps.gaps_ms),
                "switch_gaps_ms": sorted(self.switch_gaps.gaps_ms),
                "serves_after_ms_max": round(self.serving.slowest_seconds * 1_000),
                "client_errors": self.client_errors,
                "epoch_bumps": self.epoch_bumps,
                "bytes_compared": self.bytes_compared,
                "findings": [str(finding) for finding in self.findings],
            },
            indent=1,
        )
