"""Transcripts of replicas: the commands of each block are followed by their results.

A block is one or more commands, a line `----`, and the replicas whose state the commands changed.
ZHUMQ_REWRITE=1 writes the actual results into the scripts; review the diff before keeping it.

    replicas COUNT [fetch]       elect NODE       campaign NODE      pass NODE (its next deadline)
    write NODE COUNT             settle           lose (all messages in flight)
    crash NODE                   start NODE       damage NODE OFFSET
    isolate NODE...              mend             slow NODE...       flush NODE
    assign LEADER IN_SYNC... [changing-mode]      accept             switch MODE NODE...
    gone NODE (BrokerLost from the controller)

A replica is shown with its role, epoch, leader, the epochs of its records from the first offset on
(unflushed ones in brackets), and its high watermark.
"""

import os
from pathlib import Path

import pytest
from simulation.replica_bench import ReplicaBench

from zhumq.consensus.contract import BrokerLost, InSyncProposal, Mode

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
SEPARATOR = "----"


class Transcript:
    """The replicas of one script."""

    def __init__(self) -> None:
        self.bench = ReplicaBench(1)
        self._shown: dict[int, str] = {}

    def run(self, command: str) -> None:
        name, *arguments = command.split()
        numbers = [int(each) for each in arguments if each.isdigit()]
        bench = self.bench
        of_one_node = {
            "elect": bench.elect,
            "campaign": bench.campaign,
            "pass": bench.let_deadline_pass,
            "crash": bench.crash,
            "start": bench.start,
            "flush": bench.flush,
        }
        if name in of_one_node:
            of_one_node[name](*numbers)
            return
        match name, numbers:
            case "replicas", [count]:
                self.bench = ReplicaBench(
                    count, mode=Mode.FETCH if "fetch" in arguments else Mode.RAFT
                )
                self._shown = {node: self._describe(node) for node in self.bench.voters.ids}
            case "write", [node, count]:
                bench.write(node, count)
            case "settle", []:
                bench.settle()
            case "lose", []:
                bench.messages.clear()
            case "damage", [node, offset]:
                bench.damage(node, offset)
            case "isolate", nodes:
                bench.isolate(*nodes)
            case "mend", []:
                bench.cuts.clear()
            case "slow", nodes:
                bench.slow_disks = set(nodes)
            case "gone", [node]:
                for other in sorted(bench.replicas):
                    bench.step(other, BrokerLost(broker_id=node))
            case "assign", [leader, *in_sync]:
                bench.assign(leader, set(in_sync), changing_mode="changing-mode" in arguments)
            case "accept", []:
                self._accept()
            case "switch", nodes:
                for node in nodes:
                    bench.switch(node, Mode(arguments[0]), bench.assignment.epoch + 1)
            case _:
                raise ValueError(f"no such command: {command}")

    def _accept(self) -> None:
        proposal = self.bench.proposals.pop()
        assert isinstance(proposal, InSyncProposal)
        assigned = self.bench.assignment
        in_sync = set(proposal.in_sync)
        changing_mode = assigned.changing_mode and not self.bench.voters.is_majority(in_sync)
        self.bench.publish(assigned.epoch, assigned.leader_id, in_sync, changing_mode=changing_mode)
        self.bench.tell_all()

    def changes(self) -> list[str]:
        """The replicas whose state changed, and the pending proposals."""
        lines = []
        for node in self.bench.voters.ids:
            description = self._describe(node)
            if self._shown.get(node) != description:
                self._shown[node] = description
                lines.append(f"{node}: {description}")
        for proposal in self.bench.proposals:
            if isinstance(proposal, InSyncProposal):
                lines.append(f"proposed in sync {sorted(proposal.in_sync)}")
            else:
                lines.append(
                    f"{proposal.replica_id} declines to lead, asks for an epoch above {proposal.epoch}"
                )
        return lines

    def _describe(self, node: int) -> str:
        log = self.bench.logs[node]
        epochs = [str(each.epoch) for each in log.read_all(0, log.log_end_offset)]
        flushed = log.flushed_offset - log.log_start_offset
        text = " ".join(epochs[:flushed])
        if epochs[flushed:]:
            text += f" [{' '.join(epochs[flushed:])}]"
        if log.damaged_from is not None:
            text += f" damaged from {log.damaged_from}"
        text = f"log {text or 'empty'}, high watermark {self.bench.high_watermarks[node]}"
        replica = self.bench.replicas.get(node)
        if replica is None:
            return f"down, {text}"
        role = f"{replica.role} of {replica.epoch}"
        if replica.leader_id not in (None, node):
            role += f" under {replica.leader_id}"
        serving = " serving" if replica.serving else ""
        recovering = " recovering" if replica.quorum_state.recovering else ""
        return f"{role}{serving}{recovering}, {text}"


def replayed(script: str) -> str:
    """The script with the actual results after each of its blocks."""
    transcript = Transcript()
    output: list[str] = []
    is_answer = False
    for line in script.splitlines():
        if line == SEPARATOR:
            output += [SEPARATOR, *transcript.changes()]
            is_answer = True
        elif not line.strip():
            output.append("")
            is_answer = False
        elif line.startswith("#"):
            output.append(line)
        elif not is_answer:
            output.append(line)
            transcript.run(line)
    return "\n".join(output) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_transcript_is_as_recorded(path: Path) -> None:
    script = path.read_text()
    actual = replayed(script)
    if os.environ.get("ZHUMQ_REWRITE"):
        path.write_text(actual)
        return
    assert actual == script


def test_there_are_transcripts() -> None:
    assert len(SCRIPTS) >= 4
