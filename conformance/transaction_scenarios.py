"""Right and wrong requests of transactions, for asking two servers the same: each scenario has its own topics and ids."""

from collections.abc import Callable
from typing import Any

from conformance.transaction_player import FIRST, SECOND, Player, Producer

Scenario = Callable[[Player], None]
SCENARIOS: dict[str, Scenario] = {}
APIS = {
    0: "Produce", 10: "FindCoordinator", 22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn",
    27: "WriteTxnMarkers", 28: "TxnOffsetCommit", 61: "DescribeProducers", 65: "DescribeTransactions", 66: "ListTransactions",
}  # fmt: skip
BOTH = {"first version": FIRST, "second version": SECOND}
A0 = ("a", 0)
TIMEOUT_MAX_MS = 900_000


def scenario(title: str) -> Callable[[Scenario], Scenario]:
    def register(body: Scenario) -> Scenario:
        SCENARIOS[title] = body
        return body

    return register


def in_both_versions(title: str) -> Callable[[Callable[[Player, Any], None]], None]:
    """A scenario for clients of either version of transactions."""

    def register(body: Callable[[Player, Any], None]) -> None:
        for words, versions in BOTH.items():
            SCENARIOS[f"{title}, {words}"] = lambda player, versions=versions: body(
                player, versions
            )

    return register


@scenario("what is announced")
def announced(player: Player) -> None:
    answer = player.ask(
        "ApiVersions",
        "ApiVersions",
        3,
        {"client_software_name": "x", "client_software_version": "1"},
    )
    player.steps.clear()
    offered = {each.api_key: each for each in answer.api_keys}
    for key, name in APIS.items():
        each = offered.get(key)
        player.note(
            f"versions of {name}",
            f"{each.min_version}-{each.max_version}" if each else "not served",
        )
    for kind, features in (
        ("supported", answer.supported_features),
        ("finalized", answer.finalized_features),
    ):
        found = [each for each in features if each.name == "transaction.version"]
        player.note(
            f"{kind} transaction.version",
            str(getattr(found[0], "max_version_level", getattr(found[0], "max_version", "")))
            if found
            else "none",
        )


@scenario("FindCoordinator")
def find_coordinator(player: Player) -> None:
    full = player.name("tx")
    for version in (1, 3):
        player.ask(
            "FindCoordinator of a transactional id",
            "FindCoordinator",
            version,
            {"key": full, "key_type": 1},
        )
    player.ask(
        "FindCoordinator of two",
        "FindCoordinator",
        6,
        {"coordinator_keys": [full, player.name("other")], "key_type": 1},
    )
    player.ask(
        "FindCoordinator of an empty id",
        "FindCoordinator",
        6,
        {"coordinator_keys": [""], "key_type": 1},
    )
    player.ask(
        "FindCoordinator of nothing", "FindCoordinator", 6, {"coordinator_keys": [], "key_type": 1}
    )
    player.ask(
        "FindCoordinator of type 7",
        "FindCoordinator",
        6,
        {"coordinator_keys": [full], "key_type": 7},
    )


@scenario("InitProducerId, timeouts")
def timeouts(player: Player) -> None:
    for timeout_ms in (0, -1, -(2**31), TIMEOUT_MAX_MS + 1, 2**31 - 1, 1, TIMEOUT_MAX_MS):
        Producer(player, f"tx{timeout_ms}").init(f"timeout {timeout_ms} ms", timeout_ms=timeout_ms)
    for timeout_ms in (0, -1, 2**31 - 1):
        Producer(player).init(
            f"no id, timeout {timeout_ms} ms", timeout_ms=timeout_ms, transactional_id=None
        )


@scenario("InitProducerId, ids")
def ids(player: Player) -> None:
    Producer(player).init("empty id", transactional_id="")
    Producer(player).init("id of 32,767 bytes", transactional_id="x" * 32_767)
    Producer(player).init(
        "id with a space, a slash and an umlaut", transactional_id=f"{player.name('tx')} /ü"
    )
    one = Producer(player, "twice")
    one.init("first")
    one.init("second")
    for version in range(6):
        Producer(player, f"v{version}").init(version=version)


@scenario("InitProducerId of a producer that goes on")
def goes_on(player: Player) -> None:
    one = Producer(player)
    one.init("first")
    pid = one.id
    one.init("own id and epoch", producer_id=pid, producer_epoch=0)
    one.init("the same again", producer_id=pid, producer_epoch=0)
    one.init("own id and epoch", producer_id=pid, producer_epoch=1)
    one.init("older epoch", producer_id=pid, producer_epoch=0)
    one.init("newer epoch", producer_id=pid, producer_epoch=9)
    one.init("id of no producer", producer_id=pid + 1_000_000, producer_epoch=0)
    one.init("id without epoch", producer_id=pid, producer_epoch=-1)
    one.init("epoch without id", producer_id=-1, producer_epoch=0)
    one.init("negative id", producer_id=-5, producer_epoch=0)
    Producer(player, "unknown").init(
        "unknown transactional id, with id and epoch", producer_id=pid, producer_epoch=0
    )
    Producer(player).init(
        "no transactional id, with id and epoch",
        transactional_id=None,
        producer_id=pid,
        producer_epoch=0,
    )
    one.init("epoch 32766", producer_id=pid, producer_epoch=32_766)


@scenario("InitProducerId with two-phase commit")
def two_phase(player: Player) -> None:
    Producer(player, "e").init("enable2Pc", version=6, enable2_pc=True)
    Producer(player, "k").init("keepPreparedTxn", version=6, keep_prepared_txn=True)
    Producer(player, "ek").init("both", version=6, enable2_pc=True, keep_prepared_txn=True)
    Producer(player, "n").init("neither", version=6)


@in_both_versions("InitProducerId while a transaction is open")
def init_while_open(player: Player, versions: Any) -> None:
    one = Producer(player, versions=versions)
    one.init()
    if versions is FIRST:
        one.add(A0)
    one.produce(A0)
    other = Producer(player, versions=versions)
    other.init("of a second instance")
    player.read("a")
    one.produce(A0, what="by the fenced one")
    one.add(A0, what="by the fenced one")
    one.add_offsets(what="by the fenced one")
    one.commit_offsets(what="by the fenced one")
    one.commit("by the fenced one")
    one.abort("by the fenced one")
    one.init("by the fenced one, to go on", producer_id=one.id, producer_epoch=one.epoch)
    other.produce(A0, what="by the second, not added") if versions is SECOND else other.add(A0)
    other.produce(A0, what="by the second")
    other.commit("by the second")
    player.read("a")


@in_both_versions("EndTxn twice")
def end_twice(player: Player, versions: Any) -> None:
    for word, others in (("commit", "abort"), ("abort", "commit")):
        one = Producer(player, word, versions)
        one.init()
        if versions is FIRST:
            one.add((word, 0))
        one.produce((word, 0))
        epoch = {"producer_epoch": one.epoch}
        getattr(one, word)()
        player.read(word)
        getattr(one, word)("again, same epoch", **epoch)
        getattr(one, others)("same epoch", **epoch)
        if versions is SECOND:
            getattr(one, word)("again, new epoch")
            getattr(one, others)("new epoch")


@in_both_versions("EndTxn without a transaction")
def end_without(player: Player, versions: Any) -> None:
    one = Producer(player, "one", versions)
    one.init()
    one.commit("nothing was added")
    two = Producer(player, "two", versions)
    two.init()
    two.abort("nothing was added")
    two.abort("nothing was added, again")
    two.commit("nothing was added, again")


@in_both_versions("EndTxn of others")
def end_of_others(player: Player, versions: Any) -> None:
    one = Producer(player, versions=versions)
    one.init()
    one.init("again")
    if versions is FIRST:
        one.add(A0)
    one.produce(A0)
    one.commit("older epoch", producer_epoch=0)
    one.commit("newer epoch", producer_epoch=5)
    one.commit("negative epoch", producer_epoch=-1)
    one.commit("another producer's id", producer_id=one.id + 1_000_000)
    one.commit("unknown transactional id", transactional_id=player.name("unknown"))
    one.commit("empty transactional id", transactional_id="")
    player.read("a", while_open=True)
    one.commit()
    player.read("a")


@scenario("EndTxn of the first version by a client of the second, and the other way round")
def mixed_versions(player: Player) -> None:
    one = Producer(player, "one", SECOND)
    one.init()
    one.produce(("one", 0))
    one.commit("v4", version=4)
    player.read("one")
    one.produce(("one", 0))
    one.commit("v5", version=5)
    player.read("one")
    two = Producer(player, "two", FIRST)
    two.init()
    two.add(("two", 0))
    two.produce(("two", 0))
    two.commit("v5", version=5)
    two.add(("two", 0))
    two.produce(("two", 0))
    two.commit("v4", version=4)
    player.read("two")
    for version in range(5):
        each = Producer(player, f"v{version}", FIRST)
        each.init()
        each.add(("three", 0))
        each.abort(version=version)


@scenario("AddPartitionsToTxn")
def add_partitions(player: Player) -> None:
    one = Producer(player, versions=FIRST)
    one.init()
    one.init("again")
    one.add(A0, ("a", 1), ("b", 0))
    one.add(A0, A0, what="twice in one request")
    one.add(A0, what="that is added already")
    one.add(("missing", 0))
    one.add(A0, ("missing", 0), ("a", 1))
    one.add(("a", 99))
    one.add(("a", -1))
    one.add(("__consumer_offsets", 0))
    one.add(("__transaction_state", 0))
    one.add(what="nothing")
    one.add(A0, what="older epoch", producer_epoch=0)
    one.add(A0, what="newer epoch", producer_epoch=7)
    one.add(A0, what="another producer's id", producer_id=one.id + 1_000_000)
    one.add(A0, what="unknown transactional id", transactional_id=player.name("unknown"))
    one.add(A0, what="empty transactional id", transactional_id="")
    one.add(
        ("missing", 0), what="unknown transactional id", transactional_id=player.name("unknown")
    )
    one.commit()
    player.read("a", end=1)
    player.read("b", end=1)


@scenario("AddPartitionsToTxn of brokers")
def verify(player: Player) -> None:
    one = Producer(player, versions=FIRST)
    one.init()
    for version in (4, 5):
        one.verify(A0, version=version, what="before any")
    one.add(A0)
    for version in (4, 5):
        one.verify(A0, version=version)
        one.verify(A0, ("a", 1), version=version, what="one of them not added")
        one.verify(("missing", 0), version=version)
        one.verify(A0, version=version, what="older epoch", producer_epoch=-1)
        one.verify(A0, version=version, what="newer epoch", producer_epoch=5)
        one.verify(A0, version=version, what="another id", producer_id=one.id + 1_000_000)
        one.verify(
            A0,
            version=version,
            what="unknown transactional id",
            transactional_id=player.name("unknown"),
        )
        one.verify(A0, version=version, what="empty transactional id", transactional_id="")
    one.verify(("a", 1), verify_only=False)
    one.verify(("missing", 0), verify_only=False)
    one.verify(("a", 1), what="after it was added")
    one.commit()
    one.verify(A0, what="after the end")


@in_both_versions("Produce outside of a transaction")
def produce_outside(player: Player, versions: Any) -> None:
    one = Producer(player, versions=versions)
    one.produce(A0, what="before InitProducerId", producer_id=123_456_789, producer_epoch=0)
    one.init()
    one.produce(A0, what="not added")
    player.read("a", while_open=True)
    one.produce(A0, what="without a transactional id", transactional_id=None)
    one.produce(A0, what="another transactional id", transactional_id=player.name("unknown"))
    one.produce(A0, what="empty transactional id", transactional_id="")
    one.produce(A0, what="a plain batch with a transactional id", attributes=0)
    one.produce(("a", 1), what="a plain batch without one", attributes=0, transactional_id=None)
    one.produce(A0, what="acks=1", acks=1)
    one.abort()
    player.read("a")


@in_both_versions("Produce, wrong ids, epochs and sequences")
def produce_wrong(player: Player, versions: Any) -> None:
    one = Producer(player, versions=versions)
    one.init()
    one.init("again")
    if versions is FIRST:
        one.add(A0, ("b", 0))
    one.produce(A0)
    one.produce(A0, what="older epoch", producer_epoch=0, sequence=0)
    one.produce(A0, what="newer epoch", producer_epoch=9, sequence=0)
    one.produce(A0, what="another producer's id", producer_id=one.id + 1_000_000, sequence=0)
    one.produce(A0, what="sequence 5 after 0", sequence=5)
    one.produce(A0, what="sequence 0 again", sequence=0)
    one.produce(("b", 0), what="first sequence 3", sequence=3)
    one.produce(("b", 0))
    one.produce(("missing", 0))
    one.produce(("a", 99))
    one.produce(A0, ("missing", 0), what="one of them unknown")
    one.produce(A0, what="a plain batch inside of the transaction", attributes=0)
    player.read("a", while_open=True)
    player.read("a", committed=False, while_open=True)
    one.commit()
    player.read("a")
    player.read("a", committed=False)
    player.read("b")
    one.produce(A0, what="after the end, epoch before it", producer_epoch=1, sequence=1)
    one.produce(A0, what="after the end")


@scenario("Produce of the first version after the end")
def late_produce(player: Player) -> None:
    one = Producer(player, versions=FIRST)
    one.init()
    one.add(A0)
    one.produce(A0)
    one.abort()
    player.read("a")
    one.produce(A0, what="delayed past the abort", sequence=1)
    one.add(A0)
    one.produce(A0)
    one.commit()
    player.read("a")
    one.produce(("b", 0), what="of a partition that was never added")
    player.read("b")


@scenario("Produce of the first version, sequences of the last transaction again")
def sequences_of_the_last_transaction(player: Player) -> None:
    one = Producer(player, versions=FIRST)
    one.init()
    one.add(A0)
    one.produce(A0)
    one.abort()
    one.add(A0)
    one.produce(A0, what="the sequence of the aborted transaction", sequence=0)
    one.abort()
    one.add(A0)
    one.produce(A0, what="the next sequence", sequence=1)
    one.produce(A0, what="the next sequence, again", sequence=1)
    one.commit()
    one.add(A0)
    one.produce(A0, what="the sequence of the committed transaction", sequence=1)
    one.abort()
    player.read("a")


@scenario("Produce, versions")
def produce_versions(player: Player) -> None:
    for version in (3, 9, 11, 12, 13):
        one = Producer(player, f"tx{version}")
        one.init()
        if version < 12:
            one.versions = FIRST
            one.add(A0)
        if version < 13:
            one.produce(A0, version=version)
        one.abort(version=4)


@scenario("AddOffsetsToTxn")
def add_offsets(player: Player) -> None:
    one = Producer(player, versions=FIRST)
    one.init()
    one.init("again")
    one.add_offsets()
    one.add_offsets(what="again")
    one.add_offsets("", what="empty group")
    one.add_offsets(what="older epoch", producer_epoch=0)
    one.add_offsets(what="newer epoch", producer_epoch=7)
    one.add_offsets(what="another id", producer_id=one.id + 1_000_000)
    one.add_offsets(what="unknown transactional id", transactional_id=player.name("unknown"))
    one.add_offsets(what="empty transactional id", transactional_id="")
    one.commit()


@in_both_versions("TxnOffsetCommit")
def offsets(player: Player, versions: Any) -> None:
    one = Producer(player, versions=versions)
    one.init()
    player.topic("a")
    if versions is FIRST:
        one.commit_offsets(what="before AddOffsetsToTxn")
        one.add_offsets()
    one.commit_offsets(offset=5)
    player.committed("group", "a")
    player.committed("group", "a", stable=True, pending=True)
    one.commit()
    player.committed("group", "a", stable=True)
    if versions is FIRST:
        one.add_offsets()
    one.commit_offsets(offset=9)
    player.committed("group", "a")
    one.abort()
    player.committed("group", "a", stable=True)


@in_both_versions("TxnOffsetCommit, wrong")
def wrong_offsets(player: Player, versions: Any) -> None:
    one = Producer(player, versions=versions)
    one.init()
    one.init("again")
    player.topic("a")
    if versions is FIRST:
        one.add_offsets()
    one.commit_offsets(what="unknown member", member_id="unknown", generation_id=1)
    one.commit_offsets(what="generation without a member", generation_id=3)
    one.commit_offsets(what="member without a generation", member_id="unknown")
    one.commit_offsets(
        what="unknown instance", member_id="unknown", generation_id=1, group_instance_id="unknown"
    )
    one.commit_offsets("missing", what="unknown topic")
    one.commit_offsets(what="unknown partition", partition=99)
    one.commit_offsets(what="negative offset", offset=-5)
    one.commit_offsets(what="metadata of 5,000 bytes", metadata="x" * 5000)
    one.commit_offsets(what="metadata of null", metadata=None)
    one.commit_offsets(group="", what="empty group")
    one.commit_offsets(what="older epoch", producer_epoch=0)
    one.commit_offsets(what="newer epoch", producer_epoch=7)
    one.commit_offsets(what="another id", producer_id=one.id + 1_000_000)
    one.commit_offsets(what="unknown transactional id", transactional_id=player.name("unknown"))
    one.commit_offsets(what="empty transactional id", transactional_id="")
    one.commit()


@scenario("TxnOffsetCommit of members of a classic group")
def members(player: Player) -> None:
    one = Producer(player, versions=FIRST)
    one.init()
    player.topic("a")
    member, generation = join(player, "group")
    one.add_offsets()
    one.commit_offsets(what="the member", member_id=member, generation_id=generation)
    one.commit_offsets(what="older generation", member_id=member, generation_id=generation - 1)
    one.commit_offsets(what="newer generation", member_id=member, generation_id=generation + 1)
    one.commit_offsets(what="another member", member_id="unknown", generation_id=generation)
    one.commit_offsets(what="no member, no generation")
    one.commit_offsets(what="generation -1 of the member", member_id=member, generation_id=-1)
    player.ask("OffsetCommit of the group beside it", "OffsetCommit", 8, {
        "group_id": player.name("group"), "generation_id_or_member_epoch": generation, "member_id": member,
        "topics": [{"name": player.topic("a"), "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]}],
    })  # fmt: skip
    player.committed("group", "a")
    player.committed("group", "a", stable=True, pending=True)
    player.ask(
        "DeleteGroups with a pending offset",
        "DeleteGroups",
        2,
        {"groups_names": [player.name("group")]},
    )
    one.commit()
    player.committed("group", "a", stable=True)


@scenario("TxnOffsetCommit of a member of a consumer group")
def consumer_members(player: Player) -> None:
    one = Producer(player)
    one.init()
    topic = player.topic("a")
    answer = player.ask("ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat", 1, {
        "group_id": player.name("group"), "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": 0, "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [topic], "topic_partitions": [],
    })  # fmt: skip
    player.steps.clear()
    if answer is None or answer.member_id is None:
        player.note("ConsumerGroupHeartbeat", "refused")
        return
    who = {"member_id": answer.member_id}
    one.commit_offsets(what="the member", generation_id=answer.member_epoch, **who)
    one.commit_offsets(what="older epoch", generation_id=answer.member_epoch - 1, **who)
    one.commit_offsets(what="newer epoch", generation_id=answer.member_epoch + 1, **who)
    one.commit_offsets(
        what="another member", generation_id=answer.member_epoch, member_id="unknown"
    )
    one.commit_offsets(what="no member, no generation")
    one.abort()
    player.committed("group", "a", stable=True)


@scenario("WriteTxnMarkers")
def markers(player: Player) -> None:
    one = Producer(player)
    one.init()
    marker = {
        "producer_id": one.id,
        "producer_epoch": 0,
        "transaction_result": True,
        "coordinator_epoch": 0,
        "transaction_version": 1,
    }
    player.write_markers(
        {**marker, "topics": [("missing", [0])]}, what="of a topic that is not there"
    )
    player.topic("gone")
    player.delete("gone")
    player.write_markers({**marker, "topics": [("gone", [0, 1])]}, what="of a topic that is gone")
    player.write_markers(
        {**marker, "topics": [("a", [99])]}, what="of a partition that is not there"
    )
    player.write_markers(
        {**marker, "topics": [("a", [0]), ("missing", [0])]},
        what="of one that is there and one that is not",
    )
    player.write_markers(what="without markers")
    player.write_markers({**marker, "topics": []}, what="without topics")
    player.write_markers(
        {**marker, "topics": [("b", [0])]}, what="where no transaction is", version=1
    )
    player.read("b")
    player.write_markers(
        {**marker, "topics": [("b", [1])], "producer_id": -1}, what="of producer -1"
    )
    player.write_markers(
        {**marker, "topics": [("b", [1])], "producer_epoch": -1}, what="of epoch -1"
    )
    player.write_markers(
        {**marker, "topics": [("b", [1])], "transaction_version": 9},
        what="of transaction version 9",
    )


@scenario("WriteTxnMarkers, fenced")
def fenced_markers(player: Player) -> None:
    one = Producer(player)
    one.init()
    one.init("again")
    one.produce(A0)
    marker = {
        "producer_id": one.id,
        "producer_epoch": 1,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [("a", [0])],
    }
    player.write_markers(
        {**marker, "producer_epoch": 0, "transaction_version": 1}, what="older epoch, version 1"
    )
    player.write_markers({**marker, "transaction_version": 2}, what="same epoch, version 2")
    player.write_markers(
        {**marker, "transaction_version": 2, "producer_epoch": 2, "coordinator_epoch": 5},
        what="next epoch, coordinator 5",
    )
    player.read("a")
    player.write_markers(
        {**marker, "transaction_version": 2, "producer_epoch": 2, "coordinator_epoch": 4},
        what="older coordinator",
    )
    player.write_markers(
        {**marker, "transaction_version": 2, "producer_epoch": 2, "coordinator_epoch": 5},
        what="again",
    )
    player.read("a")
    one.produce(A0, what="after an operator ended it, same epoch")
    one.commit()


@scenario("a topic that is deleted inside of a transaction")
def deleted_topic(player: Player) -> None:
    one = Producer(player)
    one.init()
    one.produce(("gone", 0), A0)
    player.delete("gone")
    one.commit()
    player.read("a")
    one.produce(A0, what="of the next transaction")
    one.abort()
    player.read("a")


@in_both_versions("a transaction whose time is up")
def time_is_up(player: Player, versions: Any) -> None:
    one = Producer(player, versions=versions)
    one.init("timeout 200 ms", timeout_ms=200)
    if versions is FIRST:
        one.add(A0)
    one.produce(A0)
    player.read("a")  # it waits until the server has aborted it
    one.produce(A0, what="late")
    one.add(A0, what="late")
    one.commit("late")
    one.abort("late")
    one.init("to go on", producer_id=one.id, producer_epoch=one.epoch)
    one.init("as a new instance")
    player.read("a")


@scenario("what readers see")
def readers(player: Player) -> None:
    one = Producer(player, "one")
    two = Producer(player, "two")
    one.init()
    two.init()
    one.produce(A0)
    two.produce(A0)
    for committed in (True, False):
        player.read("a", committed=committed, while_open=True)
        player.end_offset("a", committed=committed)
    two.abort()
    player.read("a", while_open=True, end=3)
    player.end_offset("a", committed=True)
    one.commit()
    for committed in (True, False):
        player.read("a", committed=committed)
        player.end_offset("a", committed=committed)


@in_both_versions("DescribeTransactions, ListTransactions, DescribeProducers")
def described(player: Player, versions: Any) -> None:
    one = Producer(player, versions=versions)
    one.init()

    def look(when: str) -> None:
        player.ask(
            f"DescribeTransactions {when}",
            "DescribeTransactions",
            0,
            {"transactional_ids": [one.transactional_id]},
        )
        player.ask(
            f"ListTransactions of its producer id {when}",
            "ListTransactions",
            0,
            {"producer_id_filters": [one.id]},
        )
        player.ask(
            f"DescribeProducers {when}",
            "DescribeProducers",
            0,
            {"topics": [{"name": player.topic("a"), "partition_indexes": [0]}]},
        )

    look("before any")
    if versions is FIRST:
        one.add(A0, ("b", 1))
    one.produce(A0, ("b", 1))
    look("while it is open")
    one.commit()
    player.read("a")
    player.read("b", 1)
    look("after the commit")
    if versions is FIRST:
        one.add(A0)
    one.produce(A0)
    one.abort()
    player.read("a")
    look("after the abort")


@scenario("DescribeTransactions, ListTransactions, DescribeProducers, wrong")
def described_wrong(player: Player) -> None:
    player.ask(
        "DescribeTransactions of unknown and empty ids",
        "DescribeTransactions",
        0,
        {"transactional_ids": [player.name("unknown"), ""]},
    )
    player.ask(
        "DescribeTransactions of nothing", "DescribeTransactions", 0, {"transactional_ids": []}
    )
    player.ask(
        "ListTransactions of an unknown state",
        "ListTransactions",
        0,
        {"state_filters": ["Ongoing", "Flying"], "producer_id_filters": [1 << 50]},
    )
    player.ask(
        "ListTransactions of a broken pattern",
        "ListTransactions",
        2,
        {"transactional_id_pattern": "(", "producer_id_filters": [1 << 50]},
    )
    player.ask(
        "ListTransactions open for long",
        "ListTransactions",
        1,
        {"duration_filter": 1 << 40, "producer_id_filters": [1 << 50]},
    )
    one = Producer(player, "found")
    one.init()
    player.ask(
        "ListTransactions by pattern",
        "ListTransactions",
        2,
        {"transactional_id_pattern": f".*{one.transactional_id[-20:]}"},
    )
    player.ask("DescribeProducers of what is not there", "DescribeProducers", 0, {"topics": [
        {"name": player.name("missing"), "partition_indexes": [0]}, {"name": player.topic("a"), "partition_indexes": [99]},
    ]})  # fmt: skip


def join(player: Player, group: str) -> tuple[str, int]:
    """A member of a classic group that has synchronised: its id and the generation."""
    asked: dict[str, Any] = {
        "group_id": player.name(group), "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    before = len(player.steps)
    answer = player.ask("JoinGroup", "JoinGroup", 5, asked)
    if answer.error_code.name == "member_id_required":
        answer = player.ask("JoinGroup", "JoinGroup", 5, {**asked, "member_id": answer.member_id})
    player.ask("SyncGroup", "SyncGroup", 3, {
        "group_id": asked["group_id"], "generation_id": answer.generation_id, "member_id": answer.member_id,
        "assignments": [{"member_id": answer.member_id, "assignment": b""}],
    })  # fmt: skip
    del player.steps[before:]
    return answer.member_id, answer.generation_id
