"""Transactions and producers: list and show them, end prepared and hanging ones."""

from typing import Annotated

import msgspec
from msgspec import Meta

from zhumq.admin import producers, transactions
from zhumq.web.brokers import Brokers
from zhumq.web.names import INT64_MAX, AnyName, Offset, PartitionNumber, TopicName
from zhumq.web.paging import Page, PageQuery, page_of

State = Annotated[str, Meta(max_length=64, description="Such as Ongoing or PrepareCommit.")]
Duration = Annotated[int, Meta(ge=0, le=INT64_MAX, description="In milliseconds.")]


class TransactionQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which transactional ids."""

    state: list[State] = []
    older_than_ms: Duration | None = None
    pattern: (
        Annotated[str, Meta(max_length=1_024, description="An expression that the id matches.")]
        | None
    ) = None


class HangingQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where hanging transactions are looked for."""

    topic: TopicName | None = None
    partition: PartitionNumber | None = None
    older_than_ms: Duration = transactions.MAX_TIMEOUT_MS


class HangingTransaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hanging transaction to abort."""

    topic: TopicName
    partition: PartitionNumber
    start_offset: Offset


class ProducerQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which producers of the topic."""

    partition: PartitionNumber | None = None


class WritingQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which producers."""

    topic: TopicName | None = None


def list_transactions(
    brokers: Brokers, query: TransactionQuery
) -> Page[transactions.TransactionSummary]:
    """List transactional ids by name, with the age of the open transaction of each."""
    found = transactions.list_transactions(
        brokers.connection,
        states=query.state,
        older_than_ms=query.older_than_ms,
        pattern=query.pattern,
    )
    return page_of(found, lambda each: each.transactional_id, limit=query.limit, after=query.after)


def describe_transaction(brokers: Brokers, transaction: AnyName) -> transactions.TransactionDetails:
    """Show a transactional id, and the partitions that its open transaction has written to."""
    return transactions.describe_transaction(brokers.connection, transaction)


def commit(brokers: Brokers, transaction: AnyName) -> transactions.TransactionDetails:
    """Commit the prepared transaction of a two-phase producer, and fence the producer."""
    return transactions.commit_prepared(brokers.connection, transaction)


def abort(brokers: Brokers, transaction: AnyName) -> transactions.TransactionDetails:
    """Abort the open transaction of an id, and fence its producer."""
    return transactions.abort_transaction(brokers.connection, transaction)


def find_hanging(brokers: Brokers, query: HangingQuery) -> list[transactions.OpenTransaction]:
    """Find transactions that no coordinator will end, and that hold back consumers."""
    return transactions.find_hanging(
        brokers.connection,
        topic=query.topic,
        partition=query.partition if query.topic is not None else None,
        older_than_ms=query.older_than_ms,
    )


def abort_hanging(brokers: Brokers, body: HangingTransaction) -> transactions.OpenTransaction:
    """Abort a transaction that no coordinator will end."""
    return transactions.abort_hanging(
        brokers.connection, body.topic, body.partition, body.start_offset
    )


def list_writing(brokers: Brokers, query: WritingQuery) -> Page[producers.WritingProducer]:
    """List who writes what at which rate: producers of all kinds, by topic and partition.

    A producer that writes to several partitions is there for each of them. Topics that the caller may not read are left out.
    """
    topics = [query.topic] if query.topic is not None else None
    found = producers.list_writing(brokers.connection, topics=topics)
    found.sort(key=_writing_name)
    return page_of(found, _writing_name, limit=query.limit, after=query.after)


def list_producers(
    brokers: Brokers, topic: TopicName, query: ProducerQuery
) -> Page[producers.ActiveProducer]:
    """List the idempotent and transactional producers that have written to a topic."""
    found = producers.list_producers(brokers.connection, topic, partition=query.partition)
    return page_of(found, _name, limit=query.limit, after=query.after)


def _name(each: producers.ActiveProducer) -> str:
    """A name that sorts as partition and id do."""
    return f"{each.partition:010}:{each.producer_id:019}"


def _writing_name(each: producers.WritingProducer) -> str:
    """A name that sorts as topic and partition do; the rest of it tells producers apart."""
    of_producer = f"{each.producer_id} {each.host} {each.principal} {each.client_id}"
    return f"{each.topic} {each.partition:010} {each.broker_id} {of_producer}"
