"""Plays requests of transactions on one server and keeps the answers, with the ids of producers replaced by words."""

import struct
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from conformance.invalid_batches import batch, record
from conformance.kio_client import KioClient, codes_in, shown

TRANSACTIONAL = 0x10
WAIT_S = 4.0
START_WAIT_S = 60.0
# Answers of a server that is not ready yet. Which transactions are still being completed depends on time alone.
TRANSIENT = frozenset(
    {
        "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS", "NOT_LEADER_OR_FOLLOWER",
    }
)  # fmt: skip
BATCH = struct.Struct(">qiibihiqqqhii")  # the header of a batch, with base_offset and length
CONTROL = 0x20
Place = tuple[str, int]  # topic and partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Of the requests that differ between the versions of transactions."""

    produce: int
    add_partitions: int
    commit_offsets: int
    end: int


FIRST = Versions(produce=11, add_partitions=3, commit_offsets=4, end=4)
SECOND = Versions(produce=12, add_partitions=3, commit_offsets=5, end=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request of a scenario and its answer."""

    request: str
    answer: str


class Player:
    """The server, seen by one scenario, whose names no other scenario uses."""

    def __init__(self, client: KioClient, prefix: str) -> None:
        self.steps: list[Step] = []
        self._client = client
        self._prefix = prefix
        self._symbols: dict[Any, str] = {}
        self._made: set[str] = set()

    def name(self, short: str) -> str:
        """The server's name for a topic, a group or a transactional id of this scenario."""
        if not short or short.startswith("__"):
            return short
        full = f"{self._prefix}-{short}"
        self._symbols[full] = short
        return full

    def topic(self, short: str) -> str:
        """A topic with two partitions that has leaders."""
        full = self.name(short)
        if short in self._made or short.startswith(("__", "missing")):
            return full
        self._made.add(short)
        made = {"name": full, "num_partitions": 2, "replication_factor": 1}
        self._client.ask("CreateTopics", 7, {"topics": [made], "timeout_ms": 10_000})
        self._until(
            lambda: self._client.ask("ListOffsets", 8, _latest(full, (0, 1), committed=False)),
            lambda answer: codes_in(answer) == {"NONE"},
        )
        return full

    def delete(self, short: str) -> None:
        """Delete a topic, and wait until its partitions have no leader."""
        full = self.topic(short)
        self._client.ask("DeleteTopics", 5, {"topic_names": [full], "timeout_ms": 10_000})
        self._until(
            lambda: self._client.ask("ListOffsets", 8, _latest(full, (0, 1), committed=False)),
            lambda answer: codes_in(answer) == {"UNKNOWN_TOPIC_OR_PARTITION"},
        )

    def know(self, producer_id: int) -> None:
        """From now on this producer id has a word."""
        if producer_id >= 0 and producer_id not in self._symbols:
            number = sum(1 for each in self._symbols if isinstance(each, int))
            self._symbols[producer_id] = f"P{number}"

    def ask(
        self,
        request: str,
        api: str,
        version: int,
        values: Mapping[str, Any],
        *,
        passing: AbstractSet[str] = TRANSIENT,
    ) -> Any:
        """Ask, and note the answer. While an error is one of `passing`, or a transaction is being completed, ask again."""
        try:
            answer = self._until(
                lambda: self._client.ask(api, version, values),
                lambda each: (
                    not codes_in(each) & passing and "Prepare" not in shown(each, self._symbols)
                ),
            )
        except (OSError, ValueError) as error:
            self.note(f"{request} (v{version})", f"{type(error).__name__}: {error}")
            return None
        self.know(getattr(answer, "producer_id", -1))
        self.note(f"{request} (v{version})", shown(answer, self._symbols))
        return answer

    def note(self, request: str, answer: str) -> None:
        self.steps.append(Step(request=request, answer=answer))

    def read(
        self,
        topic: str,
        partition: int = 0,
        *,
        committed: bool = True,
        while_open: bool = False,
        end: int = 0,
    ) -> None:
        """Note what a reader gets of a partition, once it has this end; and, unless it is `while_open`, once no transaction is
        open in it."""
        values = {
            "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": int(committed),
            "topics": [{"topic": self.topic(topic), "partitions": [{"partition": partition, "partition_max_bytes": 1 << 20}]}],
        }  # fmt: skip

        def fetch() -> Any:
            return self._client.ask("Fetch", 12, values).responses[0].partitions[0]

        found = self._until(
            fetch,
            lambda each: (
                each.high_watermark >= end
                and (while_open or each.last_stable_offset == each.high_watermark)
            ),
        )
        batches = ", ".join(self._batches(found.records or b""))
        level = "read_committed" if committed else "read_uncommitted"
        self.note(
            f"Fetch {topic}/{partition} {level}",
            f"{shown(found, self._symbols)} batches [{batches}]",
        )

    def end_offset(self, topic: str, *, committed: bool) -> None:
        level = "read_committed" if committed else "read_uncommitted"
        values = _latest(self.topic(topic), (0,), committed=committed)
        self.ask(f"ListOffsets latest {level}", "ListOffsets", 8, values)

    def committed(
        self, group: str, topic: str, *, stable: bool = False, pending: bool = False
    ) -> None:
        """What the group has committed; unless an offset is known to be `pending`, once none is."""
        asked = {
            "group_id": self.name(group),
            "topics": [{"name": self.topic(topic), "partition_indexes": [0]}],
        }
        self.ask(
            f"OffsetFetch require_stable={stable}",
            "OffsetFetch",
            8,
            {"groups": [asked], "require_stable": stable},
            passing=TRANSIENT if pending else TRANSIENT | {"UNSTABLE_OFFSET_COMMIT"},
        )

    def write_markers(self, *markers: Mapping[str, Any], what: str, version: int = 2) -> None:
        """WriteTxnMarkers, whose topics are given by their short names."""
        values = [
            {
                **each,
                "topics": [
                    {"name": self.topic(name), "partition_indexes": indexes}
                    for name, indexes in each["topics"]
                ],
            }
            for each in markers
        ]
        self.ask(f"WriteTxnMarkers {what}", "WriteTxnMarkers", version, {"markers": values})

    def _batches(self, data: bytes) -> list[str]:
        found = []
        at = 0
        while at + BATCH.size <= len(data):
            header = BATCH.unpack_from(data, at)
            base, length, attributes, last_delta = header[0], header[1], header[5], header[6]
            producer, epoch = self._symbols.get(header[9], "no producer"), header[10]
            kind = "data"
            if attributes & CONTROL:
                # | length, attributes, timestamp, offset: 4 bytes | key length | version i16 | type i16 |
                kind = "commit" if data[at + BATCH.size + 8] else "abort"
            found.append(f"{base}-{base + last_delta} {kind} of {producer} epoch {epoch}")
            at += 12 + length
        return found

    def warm_up(self) -> None:
        """Wait until the server has both kinds of coordinators."""
        for key_type in (0, 1):
            asked = {"coordinator_keys": [self.name("warm")], "key_type": key_type}
            self._until(
                lambda asked=asked: self._client.ask("FindCoordinator", 6, asked),
                lambda answer: codes_in(answer) == {"NONE"},
                START_WAIT_S,
            )
        asked = {"transactional_id": self.name("warm"), "transaction_timeout_ms": 60_000}
        self._until(
            lambda: self._client.ask("InitProducerId", 5, asked),
            lambda answer: codes_in(answer) == {"NONE"},
            START_WAIT_S,
        )

    def _until(self, ask: Any, is_enough: Any, wait_s: float = WAIT_S) -> Any:
        deadline = time.monotonic() + wait_s
        while True:
            answer = ask()
            if is_enough(answer) or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)


class Producer:
    """The requests of one transactional producer, which goes on with the id and the epoch that it is given."""

    def __init__(self, player: Player, short: str = "tx", versions: Versions = SECOND) -> None:
        self._player = player
        self.transactional_id = player.name(short)
        self.versions = versions
        self.id = -1
        self.epoch = -1
        self._sequences: dict[tuple[str, int, int], int] = {}

    def init(
        self,
        what: str = "",
        *,
        timeout_ms: int = 60_000,
        version: int = 5,
        **values: Any,
    ) -> None:
        """InitProducerId; with `producer_id` and `producer_epoch` of a producer that goes on."""
        asked = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": timeout_ms,
            **values,
        }
        answer = self._player.ask(
            f"InitProducerId {what}".strip(),
            "InitProducerId",
            version,
            asked,
        )
        if answer is not None and codes_in(answer) == {"NONE"}:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    def add(self, *places: Place, what: str = "", **values: Any) -> None:
        """AddPartitionsToTxn as clients send it."""
        shown_places = ", ".join(f"{topic}/{index}" for topic, index in places)
        asked = {
            **self._identity("v3_and_below_"),
            "v3_and_below_topics": self._topics(places),
            **{f"v3_and_below_{name}": each for name, each in values.items()},
        }
        self._player.ask(
            f"AddPartitionsToTxn {shown_places} {what}".strip(), "AddPartitionsToTxn", self.versions.add_partitions, asked
        )  # fmt: skip

    def verify(
        self,
        *places: Place,
        version: int = 5,
        verify_only: bool = True,
        what: str = "",
        **values: Any,
    ) -> None:
        """AddPartitionsToTxn as brokers send it."""
        one = {
            **self._identity(),
            "topics": self._topics(places),
            "verify_only": verify_only,
            **values,
        }
        word = "verify" if verify_only else "add"
        shown_places = ", ".join(f"{topic}/{index}" for topic, index in places)
        self._player.ask(
            f"AddPartitionsToTxn of a broker: {word} {shown_places} {what}".strip(), "AddPartitionsToTxn", version, {"transactions": [one]}
        )  # fmt: skip

    def produce(
        self,
        *places: Place,
        what: str = "",
        version: int | None = None,
        attributes: int = TRANSACTIONAL,
        **given: Any,
    ) -> None:
        """One record to each place. `producer_id`, `producer_epoch`, `sequence`, `transactional_id` and `acks` if they are to be others."""
        producer_id = given.get("producer_id", self.id)
        epoch = given.get("producer_epoch", self.epoch)
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, index in places:
            key = (topic, index, epoch)
            sequence = given.get("sequence", self._sequences.get(key, 0))
            data = batch(
                record(), now_ms=int(time.time() * 1000), attributes=attributes, producer_id=producer_id, producer_epoch=epoch,
                base_sequence=sequence,
            )  # fmt: skip
            topics.setdefault(self._player.topic(topic), []).append(
                {"index": index, "records": data}
            )
        shown_places = ", ".join(f"{topic}/{index}" for topic, index in places)
        answer = self._player.ask(
            f"Produce {shown_places} {what}".strip(), "Produce", version or self.versions.produce,
            {
                "transactional_id": given.get("transactional_id", self.transactional_id), "acks": given.get("acks", -1), "timeout_ms": 10_000,
                "topic_data": [{"name": name, "partition_data": each} for name, each in topics.items()],
            },
        )  # fmt: skip
        if answer is not None and codes_in(answer) == {"NONE"}:
            for topic, index in places:
                key = (topic, index, epoch)
                self._sequences[key] = self._sequences.get(key, 0) + 1

    def add_offsets(self, group: str = "group", what: str = "", **values: Any) -> None:
        asked = {**self._identity(), "group_id": self._player.name(group), **values}
        self._player.ask(f"AddOffsetsToTxn {what}".strip(), "AddOffsetsToTxn", 4, asked)

    def commit_offsets(self, topic: str = "a", *, offset: int = 5, group: str = "group", what: str = "", version: int | None = None, metadata: str | None = "", **values: Any) -> None:  # fmt: skip
        """TxnOffsetCommit of one offset."""
        partition = {
            "partition_index": values.pop("partition", 0),
            "committed_offset": offset,
            "committed_metadata": metadata,
        }
        asked = {
            **self._identity(), "group_id": self._player.name(group), "generation_id": -1, "member_id": "",
            "topics": [{"name": self._player.topic(topic), "partitions": [partition]}], **values,
        }  # fmt: skip
        self._player.ask(
            f"TxnOffsetCommit {what}".strip(), "TxnOffsetCommit", version or self.versions.commit_offsets, asked
        )  # fmt: skip

    def commit(self, what: str = "", **values: Any) -> None:
        self._end("commit", what, committed=True, **values)

    def abort(self, what: str = "", **values: Any) -> None:
        self._end("abort", what, committed=False, **values)

    def _end(
        self,
        word: str,
        what: str,
        *,
        version: int | None = None,
        **values: Any,
    ) -> None:
        version = self.versions.end if version is None else version
        answer = self._player.ask(
            f"EndTxn {word} {what}".strip(),
            "EndTxn",
            version,
            {**self._identity(), **values},
        )
        if answer is not None and version >= SECOND.end and codes_in(answer) == {"NONE"}:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def _identity(self, prefix: str = "") -> dict[str, Any]:
        return {
            f"{prefix}transactional_id": self.transactional_id,
            f"{prefix}producer_id": self.id,
            f"{prefix}producer_epoch": self.epoch,
        }

    def _topics(self, places: Sequence[Place]) -> list[dict[str, Any]]:
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(self._player.topic(topic), []).append(index)
        return [{"name": name, "partitions": indexes} for name, indexes in topics.items()]


def _latest(topic: str, partitions: Sequence[int], *, committed: bool) -> dict[str, Any]:
    asked = [{"partition_index": each, "timestamp": -1} for each in partitions]
    return {
        "replica_id": -1,
        "isolation_level": int(committed),
        "topics": [{"name": topic, "partitions": asked}],
    }
