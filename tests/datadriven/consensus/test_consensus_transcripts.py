"""Stories of replicas as text: each command of a script is followed by what it led to.

A block is one or more commands, a line `----`, and the replicas that look different after them.
ZHUMQ_REWRITE=1 writes what happens into the scripts; read the difference before keeping it.

    replicas COUNT [fetch]       elect NODE       campaign NODE      pass NODE (its next deadline)
    write NODE COUNT             settle           lose (all messages under way)
    crash NODE                   start NODE       damage NODE OFFSET
    isolate NODE...              mend             slow NODE...       flush NODE
    assign LEADER IN_SYNC... [handover]           accept             switch MODE NODE...
    gone NODE (the coordinator's news)

A replica is shown with its role, epoch, leader, the epochs of its log from the first offset on (what
is not flushed in brackets), and its high watermark.
"""

import os
from pathlib import Path

import pytest

from zhumq.consensus.contract import BrokerLost, InSyncProposal, Mode
from zhumq.testing.replica_bench import ReplicaBench

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
SEPARATOR = "----"


class Story:
    """The replicas of one script."""

    def __init__(self) -> None:
        self.bench = ReplicaBench(1)
        self._shown: dict[int, str] = {}

    def run(self, command: str) -> None:
        assigned, *words = command.split()
        numbers = [int(each) for each in words if each.isdigit()]
        bench = self.bench
        of_one_node = {
            "elect": bench.elect,
            "campaign": bench.campaign,
            "pass": bench.let_deadline_pass,
            "crash": bench.crash,
            "start": bench.start,
            "flush": bench.flush,
        }
        if assigned in of_one_node:
            of_one_node[assigned](*numbers)
            return
        match assigned, numbers:
            case "replicas", [count]:
                self.bench = ReplicaBench(count, mode=Mode.FETCH if "fetch" in words else Mode.RAFT)
                self._shown = {node: self._look(node) for node in self.bench.voters.ids}
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
                bench.assign(leader, set(in_sync), changing_mode="handover" in words)
            case "accept", []:
                self._accept()
            case "switch", nodes:
                for node in nodes:
                    bench.switch(node, Mode(words[0]), bench.assignment.epoch + 1)
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
        """The replicas that look different, and what was proposed."""
        lines = []
        for node in self.bench.voters.ids:
            look = self._look(node)
            if self._shown.get(node) != look:
                self._shown[node] = look
                lines.append(f"{node}: {look}")
        for proposal in self.bench.proposals:
            if isinstance(proposal, InSyncProposal):
                lines.append(f"proposed in sync {sorted(proposal.in_sync)}")
            else:
                lines.append(f"{proposal.replica_id} wants a leader above {proposal.epoch}")
        return lines

    def _look(self, node: int) -> str:
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
        recovering = " healing" if replica.quorum_state.recovering else ""
        return f"{role}{serving}{recovering}, {text}"


def replayed(script: str) -> str:
    """The script with what really happens after each of its blocks."""
    story = Story()
    output: list[str] = []
    is_answer = False
    for line in script.splitlines():
        if line == SEPARATOR:
            output += [SEPARATOR, *story.changes()]
            is_answer = True
        elif not line.strip():
            output.append("")
            is_answer = False
        elif line.startswith("#"):
            output.append(line)
        elif not is_answer:
            output.append(line)
            story.run(line)
    return "\n".join(output) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_story_goes_as_written(path: Path) -> None:
    script = path.read_text()
    happened = replayed(script)
    if os.environ.get("ZHUMQ_REWRITE"):
        path.write_text(happened)
        return
    assert happened == script


def test_there_are_stories() -> None:
    assert len(SCRIPTS) >= 4
