"""A share partition, its delivery-state shard, a dead-letter log, and crashes that lose what was not flushed."""

import uuid
from dataclasses import dataclass, field
from random import Random

from delivery_log import made_up_log, offsets_with_records, slice_from

from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import ReplyToken, StateRecord
from zhumq.protocol.messages.delivery_state import (
    ReadSharePartitionRequest,
    ReadSharePartitionResponse,
    WriteSharePartitionRequest,
    WriteSharePartitionResponse,
)
from zhumq.share.acknowledgement import AckKind, Acknowledgement
from zhumq.share.partition_state import RecordState, SharePartitionState, SharePartitionUpdate
from zhumq.share.persisted import read_runs, written_runs
from zhumq.share.shard import DeliveryShard
from zhumq.share.share_partition import InvalidRecordState, SharePartition, SharePartitionLimits

TOPIC_ID = uuid.UUID(int=7)
GROUP = "group"
MEMBERS = ("ann", "bob", "cid")
UPDATES_PER_SNAPSHOT = 5  # so few that every run has many snapshots


@dataclass
class DeadLetterCalls:
    """A log with idempotent producers, as every partition has: a repeated batch is not written twice."""

    batches: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    flushed: int = 0

    def append(self, producer_id: int, sequence: int, offsets: tuple[int, ...]) -> None:
        mine = [batch for batch in self.batches if batch[0] == producer_id]
        for _, first, written in mine:
            if first == sequence and len(written) == len(offsets):
                assert written == offsets, "the same sequence number means the same dead letters"
                return
        expected = sum(len(written) for _, _, written in mine)
        assert sequence == expected, f"dead letter {sequence} where {expected} was expected"
        self.batches.append((producer_id, sequence, offsets))

    def flush(self) -> None:
        self.flushed = len(self.batches)

    def crash(self, draw: Random) -> None:
        del self.batches[draw.randint(self.flushed, len(self.batches)) :]
        self.flush()

    @property
    def offsets(self) -> list[int]:
        return [offset for _, _, written in self.batches for offset in written]


class Opened:
    """One opening of a share partition: the state that a broker has in memory."""

    def __init__(
        self,
        share_partition: SharePartition,
        state_epoch: int,
        leader_epoch: int,
        write_number: int,
    ) -> None:
        self.share_partition = share_partition
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.unwritten: SharePartitionUpdate | None = None
        self.unanswered: list[range] = []  # accepted, and not yet answered
        self.write_number = write_number

    def decided(self, update: SharePartitionUpdate) -> None:
        if update:
            known = self.unwritten
            self.unwritten = update if known is None else known.merged_with(update)

    def write_request(self) -> WriteSharePartitionRequest:
        assert self.unwritten is not None
        update = self.unwritten
        self.write_number += 1
        return WriteSharePartitionRequest(
            group_id=GROUP,
            topic_id=TOPIC_ID,
            leader_epoch=self.leader_epoch,
            state_epoch=self.state_epoch,
            write_number=self.write_number,
            start_offset=update.start_offset,
            dead_letters_written=update.dead_letters_written,
            runs=written_runs(update.runs),
        )


class DeliveryWorld:
    """All parts, and the acknowledgements that members got answers to."""

    def __init__(self, seed: int, limits: SharePartitionLimits, *, offsets: int) -> None:
        self.draw = Random(seed)
        self.limits = limits
        self.log = made_up_log(self.draw, offsets=offsets)
        self.records = offsets_with_records(self.log)
        self.state_log: list[StateRecord] = []
        self.state_flushed = 0
        self.shard = DeliveryShard(updates_per_snapshot=UPDATES_PER_SNAPSHOT)
        self.dead_letters = DeadLetterCalls()
        self.now_ms = 1_000
        self.confirmed: set[int] = set()  # acknowledged, and the member got the answer
        self.accepted: set[int] = set()  # acknowledged, whether or not the member got the answer
        self.leader_epoch = 0
        self.ask(
            WriteSharePartitionRequest(
                group_id=GROUP, topic_id=TOPIC_ID, dead_letter_producer_id=900, resets=True
            )
        )
        self.state_flushed = len(self.state_log)
        self.opened = self.open()
        self.zombies: list[Opened] = []
        self.sent: list[WriteSharePartitionRequest] = []

    # The shard

    def ask(self, request):
        outcome = self.shard.handle(request, ReplyToken(0), self.now_ms)
        for record in outcome.records:
            self.state_log.append(record)
            self.shard.replay(record, self.now_ms)
        return outcome.replies[0].response

    def open(self) -> Opened:
        # The same broker may open it again without having lost leadership.
        self.leader_epoch += self.draw.randrange(2)
        answer = self.ask(
            ReadSharePartitionRequest(
                group_id=GROUP, topic_id=TOPIC_ID, leader_epoch=self.leader_epoch
            )
        )
        assert isinstance(answer, ReadSharePartitionResponse)
        assert answer.is_known
        assert answer.error_code == ErrorCode.NONE
        self.state_flushed = len(self.state_log)
        state = SharePartitionState(
            start_offset=answer.start_offset,
            runs=read_runs(answer.runs),
            dead_letter_producer_id=answer.dead_letter_producer_id,
            dead_letters_written=answer.dead_letters_written,
        )
        return Opened(
            SharePartition(state, self.limits),
            answer.state_epoch,
            self.leader_epoch,
            answer.write_number,
        )

    def crash(self) -> None:
        """Lose everything in memory, and any part of what was written but not flushed."""
        del self.state_log[self.draw.randint(self.state_flushed, len(self.state_log)) :]
        if self.draw.random() < 0.5:
            self.compact()
        self.dead_letters.crash(self.draw)
        self.shard = DeliveryShard(updates_per_snapshot=UPDATES_PER_SNAPSHOT)
        for record in self.state_log:
            self.shard.replay(record, self.now_ms)
        self.opened = self.open()
        self.zombies.clear()

    def compact(self) -> None:
        """Keep the last record of every key, in log order."""
        last = {record.key: index for index, record in enumerate(self.state_log)}
        kept = sorted(last.values())
        self.state_log = [
            self.state_log[index] for index in kept if self.state_log[index].value is not None
        ]
        self.state_flushed = len(self.state_log)

    def fail_over(self) -> None:
        """Another broker becomes leader; the previous one does not know it yet. Everything written stays."""
        self.zombies.append(self.opened)
        self.opened = self.open()

    def write(self) -> None:
        opened = self.opened
        if opened.unwritten is None:
            return None
        request = opened.write_request()
        answer = self.ask(request)
        assert isinstance(answer, WriteSharePartitionResponse)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        self.sent.append(request)
        opened.unwritten = None
        if self.draw.random() < 0.2:
            return self.crash()  # before the answer
        self.state_flushed = len(self.state_log)
        for offsets in opened.unanswered:
            self.confirmed.update(offsets)
        opened.unanswered = []
        return None

    def late_writes(self) -> None:
        """A copy of an earlier write arrives again."""
        if self.sent:
            answer = self.ask(self.draw.choice(self.sent))
            assert answer.error_code in (
                ErrorCode.NONE,
                ErrorCode.FENCED_LEADER_EPOCH,
                ErrorCode.FENCED_STATE_EPOCH,
            )

    def zombie_writes(self) -> None:
        for zombie in self.zombies:
            if zombie.unwritten is not None:
                answer = self.ask(zombie.write_request())
                assert answer.error_code in (
                    ErrorCode.FENCED_LEADER_EPOCH,
                    ErrorCode.FENCED_STATE_EPOCH,
                )

    # Members

    def acquire(self, member: str, records_max: int) -> None:
        share_partition = self.opened.share_partition
        offset = share_partition.next_fetch_offset(self.now_ms)
        spans = [] if offset is None else slice_from(self.draw, self.log, offset)
        if offset is None or not spans:
            return
        for each in share_partition.acquire(
            member, spans, from_offset=offset, records_max=records_max, now_ms=self.now_ms
        ):
            given = set(range(each.first_offset, each.last_offset + 1))
            assert given <= self.records, "only what is in the log"
            assert not given & self.confirmed, "an acknowledged record is never delivered again"
            assert not given & set(self.dead_letters.offsets), (
                "a dead letter is never delivered again"
            )

    def acknowledge(self, member: str, kind: AckKind, first: int, last: int) -> None:
        opened = self.opened
        ack = Acknowledgement(first_offset=first, last_offset=last, kind=kind, reason="no")
        try:
            opened.decided(opened.share_partition.acknowledge(member, ack, self.now_ms))
        except InvalidRecordState:
            return
        if kind is AckKind.ACCEPT:
            opened.unanswered.append(range(first, last + 1))
            self.accepted.update(range(first, last + 1))

    def held(self, member: str) -> list[tuple[int, int]]:
        """Some ranges that this member has acquired."""
        return [
            (run.first_offset, run.last_offset)
            for run in list(self.opened.share_partition.runs())
            if run.state is RecordState.ACQUIRED and self._holds(member, run.first_offset)
        ]

    def _holds(self, member: str, offset: int) -> bool:
        try:
            self.opened.share_partition.acknowledge(
                member,
                Acknowledgement(first_offset=offset, last_offset=offset, kind=AckKind.RENEW),
                self.now_ms,
            )
        except InvalidRecordState:
            return False
        return True

    # Dead letters, in the steps of SharePartitionDelivery

    def write_dead_letters(self) -> None:
        opened = self.opened
        share_partition = opened.share_partition
        dead_letter = share_partition.dead_lettering()
        if dead_letter is None:
            dead_letter = share_partition.next_dead_letter()
            if dead_letter is None:
                return
            last = min(dead_letter.last_offset, dead_letter.first_offset + self.draw.randrange(4))
            opened.decided(share_partition.begin_dead_lettering(dead_letter.first_offset, last))
            return
        if opened.unwritten is not None:
            return  # SharePartitionDelivery waits until it is written
        offsets = tuple(range(dead_letter.first_offset, dead_letter.last_offset + 1))
        self.dead_letters.append(
            share_partition.dead_letter_producer_id, share_partition.dead_letters_written, offsets
        )
        if self.draw.random() < 0.3:
            self.crash()
            return
        self.dead_letters.flush()
        opened.decided(share_partition.end_dead_lettering(len(offsets)))

    def step(self) -> None:
        draw = self.draw
        self.now_ms += draw.choice((0, 1, 30, 120))
        self.opened.decided(self.opened.share_partition.expire(self.now_ms))
        member = draw.choice(MEMBERS)
        match draw.randrange(12):
            case 0 | 1 | 2:
                self.acquire(member, draw.choice((1, 3, 10, 50)))
            case 3 | 4 | 5:
                if held := self.held(member):
                    first, last = draw.choice(held)
                    first = draw.randint(first, last)
                    kind = draw.choice(
                        (AckKind.ACCEPT, AckKind.ACCEPT, AckKind.RELEASE, AckKind.REJECT)
                    )
                    self.acknowledge(member, kind, first, draw.randint(first, last))
            case 6 | 7:
                self.write()
            case 8 | 9:
                self.write_dead_letters()
            case 10:
                self.opened.decided(
                    self.opened.share_partition.release_member(member, "gone", self.now_ms)
                )
            case 11:
                if draw.random() < 0.3:
                    self.crash()
                elif draw.random() < 0.5:
                    self.fail_over()
                self.zombie_writes()
                self.late_writes()

    def finish(self) -> None:
        """Without faults, one member acquires and accepts all that is left."""
        self.draw = _NoFaults(self.draw.randrange(2**32))
        for _ in range(10_000):
            self.now_ms += 1_000
            self.opened.decided(self.opened.share_partition.expire(self.now_ms))
            self.acquire("ann", 50)
            for first, last in self.held("ann"):
                self.acknowledge("ann", AckKind.ACCEPT, first, last)
            self.write_dead_letters()
            self.write()
            if self.opened.share_partition.start_offset > max(self.records):
                return
        raise AssertionError(f"stuck at {self.opened.share_partition.start_offset}")


class _NoFaults(Random):
    """Random numbers with which no fault happens."""

    def random(self) -> float:
        return 0.99
