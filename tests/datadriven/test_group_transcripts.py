"""Transcripts of groups: the commands of each block are followed by their results.

A block is one or more commands, a line `----`, and their answers and changes, in order.
ZHUMQ_REWRITE=1 writes the actual results into the scripts; review the diff before keeping it.

    join NAME [instance=ID] [protocols=a,b] [topics=t,u] [version=N]
    sync NAME [OTHER=ASSIGNMENT ...]      heartbeat NAME       leave NAME
    commit NAME PARTITION OFFSET          committed PARTITION  wait MILLISECONDS
    forget NAME      the client crashes: it no longer knows its id
    restart          the coordinator crashes and reads its log
    describe
"""

import itertools
import os
import struct
from pathlib import Path

import pytest

from zhumq.groups.classic import ClassicGroup
from zhumq.groups.requests import GroupMessage, GroupRequest, GroupResponse
from zhumq.groups.settings import GroupSettings
from zhumq.groups.shard import GroupShard
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Outcome, ReplyToken, StateRecord
from zhumq.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

SCRIPTS = sorted(Path(__file__).parent.glob("groups/*.txt"))
GROUP = "group"
SEPARATOR = "----"


class Conversation:
    """One shard and the clients of a script, by name."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log: list[StateRecord] = []
        self.members: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.lines: list[str] = []
        self._suffixes = itertools.count(1)
        self._tokens = itertools.count()
        self._senders: dict[ReplyToken, str] = {}
        self.shard = self._load()

    def run(self, command: str) -> None:
        word, *arguments = command.split()
        words = [each for each in arguments if "=" not in each]
        options = dict(each.split("=", 1) for each in arguments if "=" in each)
        match word, words:
            case "join", [name]:
                self._join(name, options)
            case "sync", [name]:
                self._sync(name, options)
            case "heartbeat", [name]:
                self._send(
                    name,
                    HeartbeatRequest(
                        group_id=GROUP,
                        generation_id=self.generations.get(name, -1),
                        member_id=self.members.get(name, ""),
                        group_instance_id=self.instances.get(name),
                    ),
                    4,
                )
            case "leave", [name]:
                identity = MemberIdentity(member_id=self.members[name])
                self._send(name, LeaveGroupRequest(group_id=GROUP, members=[identity]), 5)
            case "commit", [name, partition, offset]:
                self._commit(name, int(partition), int(offset))
            case "committed", [partition]:
                topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[int(partition)])]
                asked = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
                self._send("committed", OffsetFetchRequest(groups=[asked]), 9)
            case "wait", [milliseconds]:
                self._advance(int(milliseconds))
            case "forget", [name]:
                self.members.pop(name)
            case "restart", []:
                self._senders.clear()
                self.shard = self._load()
            case "describe", []:
                self._describe()
            case _:
                raise ValueError(f"no such command: {command}")

    # Commands

    def _join(self, name: str, options: dict[str, str]) -> None:
        topics = options.get("topics", "t").split(",")
        names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
        metadata = struct.pack(">hi", 0, len(topics)) + names
        if "instance" in options:
            self.instances[name] = options["instance"]
        self._send(
            name,
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=30_000,
                member_id=self.members.get(name, ""),
                group_instance_id=self.instances.get(name),
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name=protocol, metadata=metadata)
                    for protocol in options.get("protocols", "range").split(",")
                ],
            ),
            int(options.get("version", "9")),
        )

    def _sync(self, name: str, assignments: dict[str, str]) -> None:
        self._send(
            name,
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generations.get(name, -1),
                member_id=self.members.get(name, ""),
                group_instance_id=self.instances.get(name),
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=self.members[other], assignment=assignment.encode()
                    )
                    for other, assignment in assignments.items()
                ],
            ),
            5,
        )

    def _commit(self, name: str, partition: int, offset: int) -> None:
        self._send(
            name,
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self.generations.get(name, -1),
                member_id=self.members.get(name, ""),
                group_instance_id=self.instances.get(name),
                topics=[
                    OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition, committed_offset=offset
                            )
                        ],
                    )
                ],
            ),
            9,
        )

    def _describe(self) -> None:
        group = self.shard.groups.get(GROUP)
        if not isinstance(group, ClassicGroup):
            self.lines.append("no group")
            return
        names = ",".join(self._name_of(member_id) for member_id in group.members) or "none"
        leader = self._name_of(group.leader_id) if group.leader_id else "none"
        self.lines.append(
            f"{group.state.value} generation={group.generation} members={names} leader={leader}"
        )

    # The shard

    def _load(self) -> GroupShard:
        settings = GroupSettings(initial_rebalance_delay_ms=3_000)
        shard = GroupShard(settings, draw_member_suffix=lambda: str(next(self._suffixes)))
        for record in self.log:
            shard.replay(record, self.now_ms)
        shard.loaded(self.now_ms)
        return shard

    def _send(self, name: str, message: GroupMessage, version: int) -> None:
        token = ReplyToken(next(self._tokens))
        self._senders[token] = name
        request = GroupRequest(message=message, version=version, client_id=name)
        self._apply(self.shard.handle(request, token, self.now_ms))

    def _advance(self, milliseconds: int) -> None:
        until_ms = self.now_ms + milliseconds
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = due_ms
            self._apply(self.shard.expire(due_ms))
        self.now_ms = until_ms

    def _apply(self, outcome: Outcome[GroupResponse]) -> None:
        for record in outcome.records:
            self.log.append(record)
            self.shard.replay(record, self.now_ms)
        if outcome.records:
            self.lines.append(f"recorded {len(outcome.records)}")
        for reply in outcome.replies:
            name = self._senders.pop(reply.token)
            self.lines.append(f"{name}: {self._describe_response(name, reply.response)}")

    def _describe_response(self, name: str, response: GroupResponse) -> str:
        match response:
            case JoinGroupResponse():
                if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    self.members[name] = response.member_id
                if response.error_code != ErrorCode.NONE:
                    return f"join {ErrorCode(response.error_code).name}"
                self.members[name] = response.member_id
                self.generations[name] = response.generation_id
                members = ",".join(self._name_of(each.member_id) for each in response.members)
                leads = f" leads {members}" if members else ""
                skips = " skips assignment" if response.skip_assignment else ""
                return f"joined {response.generation_id} {response.protocol_name}{leads}{skips}"
            case SyncGroupResponse(error_code=ErrorCode.NONE):
                return f"synced {response.assignment.decode() or 'nothing'}"
            case SyncGroupResponse():
                return f"sync {ErrorCode(response.error_code).name}"
            case HeartbeatResponse():
                return f"heartbeat {ErrorCode(response.error_code).name}"
            case LeaveGroupResponse():
                return f"leave {ErrorCode(response.members[0].error_code).name}"
            case OffsetCommitResponse():
                code = response.topics[0].partitions[0].error_code
                return f"commit {ErrorCode(code).name}"
            case OffsetFetchResponse():
                return str(response.groups[0].topics[0].partitions[0].committed_offset)
        raise ValueError(f"unexpected answer {response}")

    def _name_of(self, member_id: str) -> str:
        return next((name for name, each in self.members.items() if each == member_id), "?")


def replayed(script: str) -> str:
    """The script with the actual results after each of its blocks."""
    conversation = Conversation()
    output: list[str] = []
    is_answer = False
    for line in script.splitlines():
        if line == SEPARATOR:
            output += [SEPARATOR, *conversation.lines]
            conversation.lines = []
            is_answer = True
        elif not line.strip():
            output.append("")
            is_answer = False
        elif line.startswith("#"):
            output.append(line)
        elif not is_answer:
            output.append(line)
            conversation.run(line)
    return "\n".join(output) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(path: Path) -> None:
    script = path.read_text()
    happened = replayed(script)
    if os.environ.get("ZHUMQ_REWRITE"):
        path.write_text(happened)
        return
    assert happened == script


def test_there_are_conversations() -> None:
    assert len(SCRIPTS) >= 4
