"""Target assignments of consumer groups: computes a new one when members, topics or expressions change."""

import uuid

from zhumq.groups.assignors import ASSIGNORS, AssignedMember
from zhumq.groups.consumer import ConsumerGroup
from zhumq.groups.consumer_records import (
    deletion,
    group_epoch_record,
    regex_record,
    target_epoch_record,
    target_record,
)
from zhumq.groups.consumer_regex import RegexInvalid, TopicRegex
from zhumq.groups.consumer_topics import (
    ClusterTopics,
    MayDescribe,
    TopicShape,
    describes_all,
    shapes_hash,
)
from zhumq.groups.group import Turn
from zhumq.groups.persisted import TEXT_BYTES_MAX, ConsumerRecordKind

TEXT_OVERHEAD_BYTES = 2  # of one name in a record
RECORD_OVERHEAD_BYTES = (
    2 * TEXT_BYTES_MAX + 50
)  # upper bound for the key and the fields other than names


class ConsumerTargets:
    """Keeps the target assignments of groups current with their members and the cluster's topics."""

    def __init__(self, topics: ClusterTopics, *, record_bytes_max: int) -> None:
        self._topics = topics
        self._record_bytes_max = record_bytes_max

    def refresh(
        self,
        group: ConsumerGroup,
        turn: Turn,
        *,
        changed: bool,
        may_describe: MayDescribe = describes_all,
    ) -> None:
        """Start a new group epoch if a member or its topics changed, and assign.

        As in Kafka, expressions find the topics that the member may describe whose request it is.
        """
        if changed or group.topics_version != self._topics.version:
            self._refresh_shapes(group, turn, may_describe)
            metadata_hash = shapes_hash(group.shapes)
            if changed or metadata_hash != group.metadata_hash:
                group.metadata_hash = metadata_hash
                self.bump(group, turn)
        if group.epoch > group.assignment_epoch:
            self._assign(group, turn)

    def bump(self, group: ConsumerGroup, turn: Turn) -> None:
        """Start a new group epoch: the target assignment is computed again at the next heartbeat."""
        group.epoch += 1
        turn.record([group_epoch_record(group)])

    def _refresh_shapes(self, group: ConsumerGroup, turn: Turn, may_describe: MayDescribe) -> None:
        again = group.topics_version != self._topics.version
        self._resolve(group, turn, may_describe, again=again)
        group.topics_version = self._topics.version
        shapes: dict[str, TopicShape] = {}
        for name in group.subscribed_names:
            shape = self._topics.shape(name)
            if shape is not None:
                shapes[name] = shape
        group.shapes = shapes

    def _resolve(
        self, group: ConsumerGroup, turn: Turn, may_describe: MayDescribe, *, again: bool
    ) -> None:
        """Resolve every expression to topics; drop those that no member uses any more."""
        used = {
            member.subscribed_regex
            for member in group.members.values()
            if member.subscribed_regex is not None
        }
        for pattern in [each for each in group.regexes if each not in used]:
            del group.regexes[pattern]
            turn.record([deletion(ConsumerRecordKind.REGEX, group.group_id, pattern)])
        for pattern in sorted(used):
            if not again and pattern in group.regexes:
                continue
            found = self._topics_of(pattern, may_describe)
            if group.regexes.get(pattern) != found:
                group.regexes[pattern] = found
                turn.record([regex_record(group.group_id, pattern, found)])

    def _topics_of(self, pattern: str, may_describe: MayDescribe) -> frozenset[str]:
        """The topics that an expression matches, internal ones included, as in Kafka."""
        try:
            regex = TopicRegex(pattern)
        except RegexInvalid:
            # Heartbeats with an invalid expression are refused, but a log from another broker may have one.
            return frozenset()
        found = [
            name for name in self._topics.names() if regex.matches(name) and may_describe(name)
        ]
        # The result must fit into one record: the first topics that do are used.
        bytes_left = self._record_bytes_max - RECORD_OVERHEAD_BYTES
        if sum(map(len, found)) + TEXT_OVERHEAD_BYTES * len(found) <= bytes_left:
            return frozenset(found)
        kept = []
        for name in sorted(found):
            bytes_left -= len(name) + TEXT_OVERHEAD_BYTES
            if bytes_left < 0:
                break
            kept.append(name)
        return frozenset(kept)

    def _assign(self, group: ConsumerGroup, turn: Turn) -> None:
        shapes = group.shapes
        counts: dict[uuid.UUID, int] = {
            shape.topic_id: shape.partition_count for shape in shapes.values()
        }
        # Members with equal subscriptions share one set of ids.
        ids_of: dict[frozenset[str], frozenset[uuid.UUID]] = {}
        members = []
        for member in group.members.values():
            names = group.names_of(member)
            if names not in ids_of:
                ids_of[names] = frozenset(shapes[name].topic_id for name in names if name in shapes)
            members.append(
                AssignedMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    subscribed=ids_of[names],
                    before=group.target_of(member.member_id),
                )
            )
        for member_id, target in ASSIGNORS[group.assignor_name](members, counts).items():
            if group.targets.get(member_id) != target:
                group.targets[member_id] = target
                turn.record([target_record(group.group_id, member_id, target)])
        group.assignment_epoch = group.epoch
        turn.record([target_epoch_record(group)])
