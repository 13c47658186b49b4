"""One shard of delivery state: share partitions, claims and sessions of one partition of `__share_group_state`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Outcome, Reply, ReplyToken, StateRecord
from zhumq.protocol.messages.delivery_state import (
    ClaimTopicRequest,
    ClaimTopicResponse,
    DeleteSharePartitionsRequest,
    DeleteSharePartitionsResponse,
    DescribedSharePartition,
    DescribeSharePartitionsRequest,
    DescribeSharePartitionsResponse,
    GroupSetting,
    GroupSettingsRequest,
    GroupSettingsResponse,
    GroupSettingsValue,
    ListClaimsRequest,
    ListClaimsResponse,
    ListedClaim,
    ListedSession,
    ListGroupSettingsRequest,
    ListGroupSettingsResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    PushSessionValue,
    ReadSharePartitionRequest,
    ReadSharePartitionResponse,
    SaveSessionRequest,
    SaveSessionResponse,
    SharePartitionSnapshotValue,
    SharePartitionUpdateValue,
    TopicClaimValue,
    WriteSharePartitionRequest,
    WriteSharePartitionResponse,
)
from zhumq.share.partition_state import SharePartitionState, SharePartitionUpdate
from zhumq.share.persisted import (
    ClaimKey,
    SessionKey,
    SettingsKey,
    SharePartitionKey,
    SlotKey,
    claim_value,
    decode_key,
    read_claim,
    read_runs,
    read_value,
    record,
    written_runs,
)
from zhumq.share.requests import DeliveryRequest, DeliveryResponse, refusal
from zhumq.share.subscription import Claim

# In the compacted log a share partition takes one snapshot and at most this many updates.
UPDATES_PER_SNAPSHOT = 128
WRITES_PER_OPENING_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedSharePartition:
    """A share partition as its shard keeps it."""

    state: SharePartitionState
    state_epoch: int
    leader_epoch: int
    write_number: int
    snapshot_epoch: int
    updates_count: int  # since the snapshot


class DeliveryShard:
    """The delivery state of the groups (and the claims of the topics) that map to one partition.

    The log has a snapshot of each share partition and the updates since. Updates have slot numbers as keys and replace
    those of the previous snapshot: under compaction a share partition takes its snapshot and at most
    UPDATES_PER_SNAPSHOT updates, without any deletes.
    """

    def __init__(self, *, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._share_partitions: dict[SharePartitionKey, PersistedSharePartition] = {}
        # Slots that each share partition ever used; deleting it writes a tombstone for each.
        self._slots_used: dict[SharePartitionKey, int] = {}
        self._claims: dict[str, Claim] = {}
        self._sessions: dict[SessionKey, PushSessionValue] = {}
        self._settings: dict[str, dict[str, str]] = {}

    # The StateMachine interface

    @property
    def next_deadline_ms(self) -> int | None:
        return None

    def handle(
        self, request: DeliveryRequest, token: ReplyToken, now_ms: int
    ) -> Outcome[DeliveryResponse]:
        del now_ms
        records: list[StateRecord] = []
        response = self._answer(request, records)
        return Outcome(records=tuple(records), replies=(Reply(token, response),))

    def expire(self, now_ms: int) -> Outcome[DeliveryResponse]:
        del now_ms
        return Outcome()

    def loaded(self, now_ms: int) -> Outcome[DeliveryResponse]:
        return self.expire(now_ms)

    def replay(self, record: StateRecord, now_ms: int) -> None:  # noqa: ARG002  as in every shard
        match decode_key(record.key):
            case SharePartitionKey() as key:
                self._replay_snapshot(key, read_value(SharePartitionSnapshotValue, record.value))
            case SlotKey() as key:
                self._replay_update(key, read_value(SharePartitionUpdateValue, record.value))
            case ClaimKey(topic):
                value = read_value(TopicClaimValue, record.value)
                claim = (
                    None
                    if value is None
                    else read_claim(topic, value.group_id, value.mode, value.topic_id)
                )
                if claim is None:
                    self._claims.pop(topic, None)
                else:
                    self._claims[topic] = claim
            case SessionKey() as key:
                session = read_value(PushSessionValue, record.value)
                if session is None:
                    self._sessions.pop(key, None)
                else:
                    self._sessions[key] = session
            case SettingsKey(group_id):
                given = read_value(GroupSettingsValue, record.value)
                if given is None:
                    self._settings.pop(group_id, None)
                else:
                    self._settings[group_id] = {each.name: each.value for each in given.settings}
            case None:
                # Written by a later version, which can read it.
                pass

    def session_states(self) -> Counter[str]:
        """Number of sessions in each state."""
        return Counter(session.state for session in self._sessions.values())

    def share_partitions(self) -> dict[SharePartitionKey, PersistedSharePartition]:
        """All share partitions, for tests and tools."""
        return dict(self._share_partitions)

    # Requests

    def _answer(self, request: DeliveryRequest, records: list[StateRecord]) -> DeliveryResponse:
        match request:
            case ReadSharePartitionRequest():
                return self._read(request, records)
            case WriteSharePartitionRequest():
                return self._write(request, records)
            case DescribeSharePartitionsRequest():
                return DescribeSharePartitionsResponse(
                    share_partitions=list(self._described(request.group_id))
                )
            case DeleteSharePartitionsRequest():
                return self._delete(request, records)
            case ClaimTopicRequest():
                return self._claim(request, records)
            case SaveSessionRequest():
                key = SessionKey(request.group_id, request.consumer, request.topic)
                if request.session is not None or key in self._sessions:
                    records.append(record(key, request.session))
                return SaveSessionResponse()
            case ListSessionsRequest():
                return ListSessionsResponse(
                    sessions=[
                        ListedSession(
                            group_id=key.group_id,
                            consumer=key.consumer,
                            topic=key.topic,
                            session=session,
                        )
                        for key, session in self._sessions.items()
                        if request.group_id in ("", key.group_id)
                    ]
                )
            case GroupSettingsRequest():
                return self._set(request, records)
            case ListGroupSettingsRequest():
                return ListGroupSettingsResponse(group_ids=list(self._settings))
            case ListClaimsRequest():
                return ListClaimsResponse(claims=list(self._listed_claims(request.group_id)))
            case _:
                assert_never(request)

    def _set(
        self, request: GroupSettingsRequest, records: list[StateRecord]
    ) -> GroupSettingsResponse:
        before = self._settings.get(request.group_id, {})
        after = before | {each.name: each.value for each in request.sets}
        for name in request.deletes:
            after.pop(name, None)
        settings = [GroupSetting(name=name, value=value) for name, value in after.items()]
        if after != before:
            value = GroupSettingsValue(settings=settings) if settings else None
            records.append(record(SettingsKey(request.group_id), value))
        return GroupSettingsResponse(settings=settings)

    def _read(
        self, request: ReadSharePartitionRequest, records: list[StateRecord]
    ) -> DeliveryResponse:
        key = SharePartitionKey(request.group_id, request.topic_id, request.partition)
        share_partition = self._share_partitions.get(key)
        if share_partition is None:
            return ReadSharePartitionResponse()
        if request.leader_epoch < share_partition.leader_epoch:
            return _fenced(request, share_partition)
        # This fences earlier leaders of the partition and earlier readers of the same leader.
        taken_over = replace(
            share_partition,
            leader_epoch=request.leader_epoch,
            write_number=_next_opening(share_partition.write_number),
        )
        self._put(key, taken_over, SharePartitionUpdate(start_offset=-1), records)
        state = share_partition.state
        return ReadSharePartitionResponse(
            is_known=True,
            state_epoch=share_partition.state_epoch,
            write_number=taken_over.write_number,
            start_offset=state.start_offset,
            dead_letter_producer_id=state.dead_letter_producer_id,
            dead_letters_written=state.dead_letters_written,
            runs=written_runs(state.runs),
        )

    def _write(
        self, request: WriteSharePartitionRequest, records: list[StateRecord]
    ) -> DeliveryResponse:
        key = SharePartitionKey(request.group_id, request.topic_id, request.partition)
        share_partition = self._share_partitions.get(key)
        if request.resets:
            return self._reset(key, share_partition, request, records)
        if share_partition is None:
            return refusal(
                request,
                ErrorCode.FENCED_STATE_EPOCH,
                "the share partition was deleted: read it again",
            )
        if request.leader_epoch < share_partition.leader_epoch:
            return _fenced(request, share_partition)
        if request.state_epoch != share_partition.state_epoch:
            return refusal(
                request,
                ErrorCode.FENCED_STATE_EPOCH,
                f"the share partition is at state epoch {share_partition.state_epoch}, not {request.state_epoch}",
            )
        if _opening(request.write_number) < _opening(share_partition.write_number):
            return refusal(
                request, ErrorCode.FENCED_STATE_EPOCH, "the share partition was opened again since"
            )
        if request.write_number <= share_partition.write_number:
            # A retry after a late answer: the write is done already, and later ones may be too.
            return WriteSharePartitionResponse(
                state_epoch=share_partition.state_epoch, write_number=share_partition.write_number
            )
        written = replace(
            share_partition, leader_epoch=request.leader_epoch, write_number=request.write_number
        )
        self._put(key, written, _update_in(request), records)
        return WriteSharePartitionResponse(
            state_epoch=share_partition.state_epoch, write_number=request.write_number
        )

    def _reset(
        self,
        key: SharePartitionKey,
        share_partition: PersistedSharePartition | None,
        request: WriteSharePartitionRequest,
        records: list[StateRecord],
    ) -> DeliveryResponse:
        """Start again at another offset: requested by an operator, or when a share partition is first opened."""
        if share_partition is not None and -1 < request.leader_epoch < share_partition.leader_epoch:
            return _fenced(request, share_partition)
        state_epoch = 0 if share_partition is None else share_partition.state_epoch + 1
        kept = PersistedSharePartition(
            state=SharePartitionState(
                start_offset=request.start_offset,
                runs=read_runs(request.runs),
                dead_letter_producer_id=request.dead_letter_producer_id,
                dead_letters_written=request.dead_letters_written,
            ),
            state_epoch=state_epoch,
            leader_epoch=max(
                request.leader_epoch,
                -1 if share_partition is None else share_partition.leader_epoch,
            ),
            write_number=_next_opening(
                0 if share_partition is None else share_partition.write_number
            ),
            snapshot_epoch=0 if share_partition is None else share_partition.snapshot_epoch,
            updates_count=0,
        )
        records.append(_snapshot(key, kept))
        return WriteSharePartitionResponse(state_epoch=state_epoch, write_number=kept.write_number)

    def _described(self, group_id: str) -> Iterable[DescribedSharePartition]:
        for key, share_partition in self._share_partitions.items():
            if group_id in ("", key.group_id):
                yield DescribedSharePartition(
                    group_id=key.group_id,
                    topic_id=key.topic_id,
                    partition=key.partition,
                    start_offset=share_partition.state.start_offset,
                    leader_epoch=share_partition.leader_epoch,
                    state_epoch=share_partition.state_epoch,
                    done_count=share_partition.state.done_count,
                )

    def _delete(
        self, request: DeleteSharePartitionsRequest, records: list[StateRecord]
    ) -> DeliveryResponse:
        topic_ids = None if request.topic_ids is None else set(request.topic_ids)
        deleted = [
            key
            for key in self._share_partitions
            if request.group_id in ("", key.group_id)
            and (topic_ids is None or key.topic_id in topic_ids)
        ]
        for key in deleted:
            records.append(record(key, None))
            records.extend(
                record(SlotKey(key, slot), None) for slot in range(self._slots_used.get(key, 0))
            )
        if topic_ids is not None and not request.group_id:
            records.extend(
                record(ClaimKey(claim.topic), None)
                for claim in self._claims.values()
                if claim.topic_id in topic_ids
            )
        if topic_ids is None and request.group_id:
            records.extend(
                record(key, None) for key in self._sessions if key.group_id == request.group_id
            )
            if request.group_id in self._settings:
                records.append(record(SettingsKey(request.group_id), None))
        return DeleteSharePartitionsResponse(deleted_count=len(deleted))

    def _claim(self, request: ClaimTopicRequest, records: list[StateRecord]) -> DeliveryResponse:
        key = ClaimKey(request.topic)
        claim = self._claims.get(request.topic)
        if claim is not None and not claim.is_of(request.topic_id):
            claim = None  # The claim ended when its topic was deleted.
        if request.gives_up:
            if claim is not None and request.group_id in ("", claim.group):
                records.append(record(key, None))
                claim = None
        elif claim is None:
            # The requester compares the claim in the answer with its own, and reports a conflict.
            claim = read_claim(request.topic, request.group_id, request.mode, request.topic_id)
            if claim is not None:
                records.append(record(key, claim_value(claim)))
        if claim is None:
            return ClaimTopicResponse()
        return ClaimTopicResponse(group_id=claim.group, mode=claim.mode.value)

    def _listed_claims(self, group_id: str) -> Iterable[ListedClaim]:
        for claim in self._claims.values():
            if group_id in ("", claim.group):
                yield ListedClaim(
                    topic=claim.topic,
                    topic_id=claim.topic_id,
                    group_id=claim.group,
                    mode=claim.mode.value,
                )

    # Persisted share partitions

    def _put(
        self,
        key: SharePartitionKey,
        share_partition: PersistedSharePartition,
        update: SharePartitionUpdate,
        records: list[StateRecord],
    ) -> None:
        """Write the update or, after `updates_per_snapshot` updates, a snapshot."""
        if share_partition.updates_count >= self._updates_per_snapshot:
            updated = replace(share_partition, state=share_partition.state.updated(update))
            records.append(_snapshot(key, updated))
            return
        records.append(
            record(
                SlotKey(key, share_partition.updates_count),
                SharePartitionUpdateValue(
                    snapshot_epoch=share_partition.snapshot_epoch,
                    leader_epoch=share_partition.leader_epoch,
                    write_number=share_partition.write_number,
                    start_offset=update.start_offset,
                    dead_letters_written=update.dead_letters_written,
                    runs=written_runs(update.runs),
                ),
            )
        )

    def _replay_snapshot(
        self, key: SharePartitionKey, value: SharePartitionSnapshotValue | None
    ) -> None:
        if value is None:
            self._share_partitions.pop(key, None)
            self._slots_used.pop(key, None)
            return
        self._share_partitions[key] = PersistedSharePartition(
            state=SharePartitionState(
                start_offset=value.start_offset,
                dead_letter_producer_id=value.dead_letter_producer_id,
            ).updated(_update_in(value)),
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            write_number=value.write_number,
            snapshot_epoch=value.snapshot_epoch,
            updates_count=0,
        )

    def _replay_update(self, key: SlotKey, value: SharePartitionUpdateValue | None) -> None:
        if value is None:
            return
        share_partition = self._share_partitions.get(key.share_partition)
        self._slots_used[key.share_partition] = max(
            self._slots_used.get(key.share_partition, 0), key.slot + 1
        )
        if share_partition is None or share_partition.snapshot_epoch != value.snapshot_epoch:
            # The update belongs to an earlier snapshot, which compaction has removed.
            return
        self._share_partitions[key.share_partition] = replace(
            share_partition,
            state=share_partition.state.updated(_update_in(value)),
            leader_epoch=max(share_partition.leader_epoch, value.leader_epoch),
            write_number=value.write_number,
            updates_count=key.slot + 1,
        )


def _opening(write_number: int) -> int:
    """Which opening of the share partition a write belongs to."""
    return write_number >> WRITES_PER_OPENING_BITS


def _next_opening(write_number: int) -> int:
    return (_opening(write_number) + 1) << WRITES_PER_OPENING_BITS


def _update_in(
    written: WriteSharePartitionRequest | SharePartitionSnapshotValue | SharePartitionUpdateValue,
) -> SharePartitionUpdate:
    return SharePartitionUpdate(
        start_offset=written.start_offset,
        runs=read_runs(written.runs),
        dead_letters_written=written.dead_letters_written,
    )


def _snapshot(key: SharePartitionKey, share_partition: PersistedSharePartition) -> StateRecord:
    """A snapshot of the share partition, under the next snapshot epoch."""
    return record(
        key,
        SharePartitionSnapshotValue(
            snapshot_epoch=share_partition.snapshot_epoch + 1,
            state_epoch=share_partition.state_epoch,
            leader_epoch=share_partition.leader_epoch,
            write_number=share_partition.write_number,
            start_offset=share_partition.state.start_offset,
            dead_letter_producer_id=share_partition.state.dead_letter_producer_id,
            dead_letters_written=share_partition.state.dead_letters_written,
            runs=written_runs(share_partition.state.runs),
        ),
    )


def _fenced(
    request: ReadSharePartitionRequest | WriteSharePartitionRequest,
    share_partition: PersistedSharePartition,
) -> DeliveryResponse:
    return refusal(
        request,
        ErrorCode.FENCED_LEADER_EPOCH,
        f"leader epoch {request.leader_epoch} is fenced: the share partition is at {share_partition.leader_epoch}",
    )
