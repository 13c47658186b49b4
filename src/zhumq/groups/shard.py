"""One shard: the groups of one partition of `__consumer_offsets`. Requests in, records and replies out."""

from collections.abc import Callable
from typing import assert_never

from zhumq.groups.classic import ClassicGroup, ClassicGroupState
from zhumq.groups.classic_protocol import ClassicProtocol
from zhumq.groups.consumer import ConsumerGroup
from zhumq.groups.consumer_heartbeat import Refused
from zhumq.groups.consumer_records import records_of
from zhumq.groups.consumer_shard import ConsumerGroups
from zhumq.groups.consumer_topics import ClusterTopics, NoTopics
from zhumq.groups.group import DeadlineKey, DeadlineKind, Group, Turn
from zhumq.groups.join_check import check_join
from zhumq.groups.member_memory import MemberMemory, bytes_to_keep
from zhumq.groups.offset_shard import GroupOffsets
from zhumq.groups.offsets import CommittedOffsets
from zhumq.groups.persisted import (
    ConsumerKey,
    ConsumerRecordKind,
    GroupKey,
    OffsetKey,
    ShareKey,
    decode_group,
    decode_key,
    decode_offset,
    group_record,
    offset_record,
)
from zhumq.groups.requests import (
    GroupRequest,
    GroupResponse,
    TopicsDeletedRequest,
    answer_leaving,
    refusal,
)
from zhumq.groups.settings import GroupSettings
from zhumq.groups.share import ShareGroup
from zhumq.groups.share import records_of as share_records_of
from zhumq.groups.share_shard import ShareGroups
from zhumq.model.deadlines import Deadlines
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import Outcome, ReplyToken, StateRecord
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)
from zhumq.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from zhumq.protocol.messages.share import (
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from zhumq.protocol.messages.transactions import TxnOffsetCommitRequest

BATCHED_LEAVE_SINCE_VERSION = 3  # KIP-345
GROUP_ID_NOT_FOUND_IN_DESCRIBE_SINCE_VERSION = 6  # KIP-1043


class GroupShard:
    """The groups whose ids map to one partition. Its hard state is the last record of every key, and the offsets of
    open transactions.

    While the log is read, `replay` only keeps the last value of every key; `loaded` builds groups and offsets from
    them. Afterwards `replay` updates the offsets and the recorded state of classic groups.
    A rebalance in progress is not recorded, as in Kafka: after a reload its members join again.
    A consumer group records every step, so that its state always equals the log.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        draw_member_suffix: Callable[[], str],
        topics: ClusterTopics | None = None,
    ) -> None:
        self._settings = settings
        self._classic = ClassicProtocol(settings, draw_member_suffix)
        self.groups: dict[str, Group] = {}
        self._member_memory = MemberMemory(self.groups, settings.shard_member_bytes_max)
        topics = topics or NoTopics()
        self._consumer = ConsumerGroups(
            settings, topics, draw_member_suffix, self.groups, self._classic
        )
        self._share = ShareGroups(settings, topics, self.groups)
        self.offsets = GroupOffsets(settings, self.groups)
        self._recorded_groups: dict[str, bytes] = {}
        self._deadlines: Deadlines[DeadlineKey] = Deadlines()
        self._loading: dict[bytes, bytes] | None = {}

    @property
    def committed(self) -> CommittedOffsets:
        return self.offsets.committed

    # The StateMachine interface

    @property
    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_deadline_ms

    def handle(
        self, request: GroupRequest, token: ReplyToken, now_ms: int
    ) -> Outcome[GroupResponse]:
        assert self._loading is None, "a shard serves once it is loaded"
        turn = Turn(now_ms, self._deadlines)
        if self._member_memory.take(bytes_to_keep(request.message)):
            self._handle(request, token, turn)
        else:
            turn.answer(token, refusal(request, ErrorCode.GROUP_MAX_SIZE_REACHED))
        return turn.outcome()

    def _handle(self, request: GroupRequest, token: ReplyToken, turn: Turn) -> None:
        message = request.message
        match message:
            case JoinGroupRequest():
                self._join(message, request, token, turn)
            case SyncGroupRequest():
                self._sync(message, request, token, turn)
            case HeartbeatRequest():
                code = self._heartbeat(message, turn)
                turn.answer(token, HeartbeatResponse(error_code=code))
            case LeaveGroupRequest():
                turn.answer(token, self._leave(message, request.version, turn))
            case ConsumerGroupHeartbeatRequest():
                turn.answer(token, self._consumer.heartbeat(message, request, turn))
                if self.groups:
                    self._schedule_offsets_check(turn)
            case ConsumerGroupDescribeRequest():
                consumers = [self._consumer.describe(each) for each in message.group_ids]
                turn.answer(token, ConsumerGroupDescribeResponse(groups=consumers))
            case ShareGroupHeartbeatRequest() | ShareGroupDescribeRequest():
                turn.answer(token, self._share.answer(message, request, turn))
            case (
                OffsetCommitRequest()
                | TxnOffsetCommitRequest()
                | OffsetFetchRequest()
                | OffsetDeleteRequest()
                | TopicsDeletedRequest()
            ):
                turn.answer(token, self.offsets.answer(message, request.version, turn))
            case DescribeGroupsRequest():
                described = [self._describe(each, request.version) for each in message.groups]
                turn.answer(token, DescribeGroupsResponse(groups=described))
            case ListGroupsRequest():
                turn.answer(token, self._list(message))
            case DeleteGroupsRequest():
                deleted = [self._delete_group(each, turn) for each in message.groups_names]
                turn.answer(token, DeleteGroupsResponse(results=deleted))
            case _:
                assert_never(message)

    def expire(self, now_ms: int) -> Outcome[GroupResponse]:
        turn = Turn(now_ms, self._deadlines)
        while (key := self._deadlines.pop_due(now_ms)) is not None:
            if key.kind is DeadlineKind.OFFSETS_CHECK:
                self.offsets.expire(turn)
                if self.groups:
                    self._schedule_offsets_check(turn)
                continue
            group = self.groups.get(key.group_id)
            if isinstance(group, ClassicGroup):
                self._expire_classic(group, key, turn)
            elif isinstance(group, ConsumerGroup):
                self._consumer.deadline_passed(group, key, turn)
            elif isinstance(group, ShareGroup):
                self._share.deadline_passed(group, key, turn)
        return turn.outcome()

    def replay(self, record: StateRecord, now_ms: int) -> None:
        if self._loading is not None:
            self._replay_loading(self._loading, record)
            return
        match decode_key(record.key):
            case OffsetKey() as key:
                self._replay_offset(key, record.value, now_ms)
            case GroupKey(group_id):
                self._replay_group(group_id, record.value)
            case ConsumerKey(kind, group_id):
                self._replay_consumer_group(kind, group_id, record.value)
            case ShareKey() as key:
                self._share.replay(key, record.value)
            case None:
                # Written by a later version, which can read it.
                pass

    def replay_pending(self, producer_id: int, record: StateRecord, now_ms: int) -> None:
        key = decode_key(record.key)
        if not isinstance(key, OffsetKey) or record.value is None:
            # No coordinator writes these in a transaction. Kafka reads them like this as well.
            self.replay(record, now_ms)
            return
        self.offsets.pending.put(producer_id, key, record)
        if self._loading is None:
            self._ensure_group(key.group_id, now_ms)

    def end_transaction(self, producer_id: int, now_ms: int, *, is_commit: bool) -> None:
        for record in self.offsets.pending.end(producer_id, is_commit=is_commit):
            key = decode_key(record.key)
            assert isinstance(key, OffsetKey)
            if self._loading is not None:
                assert record.value is not None
                self._loading[record.key] = record.value
            else:
                self._put_offset(key, record.value, now_ms)

    def loaded(self, now_ms: int) -> Outcome[GroupResponse]:
        """Build the groups from the log, which is read to its end. Every member starts with a full session timeout."""
        assert self._loading is not None, "a shard is loaded once"
        records, self._loading = self._loading, None
        of_consumers: dict[ConsumerKey, bytes] = {}
        for raw_key, value in records.items():
            match decode_key(raw_key):
                case OffsetKey() as key:
                    self._put_offset(key, value, now_ms)
                case GroupKey(group_id):
                    decoded = decode_group(value)
                    if decoded is not None:
                        self._recorded_groups[group_id] = value
                        self.groups[group_id] = ClassicGroup.from_record(
                            group_id, decoded, now_ms=now_ms
                        )
                case ConsumerKey() as key:
                    of_consumers[key] = value
                case ShareKey() as key:
                    self._share.restore(key, value)
                case None:
                    pass
        self._consumer.restore(of_consumers)
        for group_id in self.offsets.pending.group_ids:
            self._ensure_group(group_id, now_ms)
        turn = Turn(now_ms, self._deadlines)
        for group in list(self.groups.values()):
            if isinstance(group, ConsumerGroup):
                self._consumer.resume(group, turn)
            elif isinstance(group, ShareGroup):
                self._share.resume(group, turn)
            elif isinstance(group, ClassicGroup):
                for member_id in group.members:
                    group.renew_session(member_id, turn)
                if len(group.members) > self._settings.members_max:
                    # The limit was lowered: let the members commit; then only `members_max` of them can rejoin.
                    self._classic.prepare_rebalance(group, turn)
        if self.groups:
            self._schedule_offsets_check(turn)
        return turn.outcome()

    def hard_state(self) -> dict[bytes, bytes]:
        """The contents of the log, as the last value of every key."""
        state: dict[bytes, bytes] = {}
        for group_id, value in self._recorded_groups.items():
            state[group_record(group_id, None).key] = value
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                state.update((each.key, each.value or b"") for each in records_of(group))
            elif isinstance(group, ShareGroup):
                state.update((each.key, each.value or b"") for each in share_records_of(group))
        for key, committed in self.committed.items():
            record = offset_record(key, committed)
            assert record.value is not None
            state[record.key] = record.value
        return state

    # Members

    def _join(
        self, message: JoinGroupRequest, request: GroupRequest, token: ReplyToken, turn: Turn
    ) -> None:
        code = check_join(message, self._settings)
        if code is not ErrorCode.NONE:
            turn.answer(token, refusal(request, code))
            return
        group = self.groups.get(message.group_id)
        if isinstance(group, ShareGroup):
            turn.answer(token, refusal(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            try:
                turn.answer(token, self._consumer.join(group, message, request, turn))
            except Refused as reason:
                turn.answer(token, refusal(request, reason.code))
            return
        if not isinstance(group, ClassicGroup):
            if message.member_id:
                # Only a member without an id can create a group.
                turn.answer(token, refusal(request, ErrorCode.UNKNOWN_MEMBER_ID))
                return
            created = ClassicGroup(message.group_id, now_ms=turn.now_ms)
            if isinstance(group, ConsumerGroup):
                # No member of the consumer protocol is left: the next member decides the protocol.
                turn.record(group.tombstones())
                created.generation = group.epoch
            group = created
            self._add_group(group, turn)
        self._classic.join(group, message, request, token, turn)

    def _sync(
        self, message: SyncGroupRequest, request: GroupRequest, token: ReplyToken, turn: Turn
    ) -> None:
        group = self.groups.get(message.group_id)
        if not message.group_id:
            turn.answer(token, SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        elif isinstance(group, ClassicGroup):
            self._classic.sync(group, message, request.version, token, turn)
        elif isinstance(group, ConsumerGroup):
            turn.answer(token, self._consumer.sync(group, message, turn))
        else:
            turn.answer(token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def _heartbeat(self, message: HeartbeatRequest, turn: Turn) -> ErrorCode:
        if not message.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(message.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.heartbeat(group, message, turn)
        if isinstance(group, ConsumerGroup):
            return self._consumer.classic_heartbeat(group, message, turn)
        return ErrorCode.UNKNOWN_MEMBER_ID

    def _leave(self, message: LeaveGroupRequest, version: int, turn: Turn) -> LeaveGroupResponse:
        if not message.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        if version < BATCHED_LEAVE_SINCE_VERSION:
            message = LeaveGroupRequest(
                group_id=message.group_id, members=[MemberIdentity(member_id=message.member_id)]
            )
        group = self.groups.get(message.group_id)
        if isinstance(group, ClassicGroup):
            response = self._classic.leave(group, message, turn)
        elif isinstance(group, ConsumerGroup):
            response = self._consumer.leave(group, message, turn)
        else:
            response = LeaveGroupResponse(
                members=[
                    answer_leaving(each, ErrorCode.UNKNOWN_MEMBER_ID) for each in message.members
                ]
            )
        if version < BATCHED_LEAVE_SINCE_VERSION:
            return LeaveGroupResponse(error_code=response.members[0].error_code)
        return response

    def _expire_classic(self, group: ClassicGroup, key: DeadlineKey, turn: Turn) -> None:
        match key.kind:
            case DeadlineKind.SESSION:
                self._classic.session_deadline_passed(group, key.member_id, turn)
            case DeadlineKind.JOIN:
                self._classic.join_deadline_passed(group, turn)
            case DeadlineKind.SYNC:
                self._classic.sync_deadline_passed(group, turn)
            case DeadlineKind.REBALANCE | DeadlineKind.OFFSETS_CHECK:
                raise AssertionError(f"{key.kind} is not a deadline of a classic group")

    def _schedule_offsets_check(self, turn: Turn) -> None:
        key = DeadlineKey(DeadlineKind.OFFSETS_CHECK)
        if key not in self._deadlines:
            turn.set_deadline(key, self._settings.offsets_retention_check_interval_ms)

    # Groups

    def _add_group(self, group: Group, turn: Turn) -> None:
        self.groups[group.group_id] = group
        self._schedule_offsets_check(turn)

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.described()
        described = DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
        if version >= GROUP_ID_NOT_FOUND_IN_DESCRIBE_SINCE_VERSION:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = (
                f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a classic group."
            )
        return described

    def _list(self, message: ListGroupsRequest) -> ListGroupsResponse:
        states = {state.lower() for state in message.states_filter}
        types = {type_.lower() for type_ in message.types_filter}
        return ListGroupsResponse(
            groups=[
                group.listed()
                for group in self.groups.values()
                if (not states or group.state_name.lower() in states)
                and (not types or group.type.value in types)
            ]
        )

    def _delete_group(self, group_id: str, turn: Turn) -> DeletableGroupResult:
        group = self.groups.get(group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is not None and code is ErrorCode.NONE:
            turn.record(self.offsets.tombstones(group_id))
            turn.record(group.tombstones())
        return DeletableGroupResult(group_id=group_id, error_code=code)

    # Replay

    def _replay_loading(self, loading: dict[bytes, bytes], record: StateRecord) -> None:
        if record.value is None:
            loading.pop(record.key, None)
        else:
            loading[record.key] = record.value
        if self.offsets.pending:
            key = decode_key(record.key)
            if isinstance(key, OffsetKey):
                self.offsets.outdate_pending(key, is_deleted=record.value is None)

    def _replay_offset(self, key: OffsetKey, value: bytes | None, now_ms: int) -> None:
        self.offsets.outdate_pending(key, is_deleted=value is None)
        self._put_offset(key, value, now_ms)

    def _put_offset(self, key: OffsetKey, value: bytes | None, now_ms: int) -> None:
        committed = None if value is None else decode_offset(value)
        if committed is None:
            self.committed.remove(key)
            return
        self.committed.put(key, committed)
        self._ensure_group(key.group_id, now_ms)

    def _ensure_group(self, group_id: str, now_ms: int) -> None:
        """The group exists from its first offset on."""
        if group_id not in self.groups:
            self._add_group(ClassicGroup(group_id, now_ms=now_ms), Turn(now_ms, self._deadlines))

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is not None:
            # The group has applied this already when it decided it.
            self._recorded_groups[group_id] = value
            return
        self._recorded_groups.pop(group_id, None)
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            del self.groups[group_id]
            for member_id in group.pending_members:
                self._deadlines.cancel(DeadlineKey(DeadlineKind.SESSION, group_id, member_id))

    def _replay_consumer_group(
        self, kind: ConsumerRecordKind, group_id: str, value: bytes | None
    ) -> None:
        # A group applies its own decisions when it makes them. Only its deletion is decided elsewhere.
        if kind is ConsumerRecordKind.GROUP and value is None:
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                del self.groups[group_id]
