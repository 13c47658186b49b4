"""Constructs the handlers of all APIs of the Kafka listener."""

import random
from collections.abc import Mapping
from typing import Final

from zhumq.broker.audit_reader import AuditReader
from zhumq.broker.authentication import Authentication
from zhumq.broker.config import BrokerConfig
from zhumq.broker.config_entries import ConfigEntries
from zhumq.broker.dispatch import Handler
from zhumq.broker.fetch_sessions import FetchSessions
from zhumq.broker.handlers.acls import AclsHandler
from zhumq.broker.handlers.audit_log import AuditLogHandler
from zhumq.broker.handlers.configs import ConfigsHandler
from zhumq.broker.handlers.coordinators import (
    Coordinated,
    CoordinatorKind,
    FindCoordinatorHandler,
)
from zhumq.broker.handlers.fetch import FetchHandler
from zhumq.broker.handlers.groups import GroupsHandler
from zhumq.broker.handlers.history import HistoryHandler
from zhumq.broker.handlers.log_dirs import LogDirsHandler
from zhumq.broker.handlers.lookup import LookupHandler
from zhumq.broker.handlers.metadata import MetadataHandler
from zhumq.broker.handlers.offsets import OffsetsHandler
from zhumq.broker.handlers.produce import ProduceHandler
from zhumq.broker.handlers.producers import ProducersHandler
from zhumq.broker.handlers.quotas import QuotasHandler
from zhumq.broker.handlers.reassignments import ReassignmentsHandler
from zhumq.broker.handlers.schedule import ScheduleHandler
from zhumq.broker.handlers.scram_credentials import ScramCredentialsHandler
from zhumq.broker.handlers.topics import TopicsHandler
from zhumq.broker.handlers.transactions import TransactionsHandler
from zhumq.broker.handlers.writing_producers import WritingProducersHandler
from zhumq.broker.quotas import ClientQuotas
from zhumq.broker.settings import RACK_SELECTORS
from zhumq.broker.wiring.coordinators import Coordinators
from zhumq.broker.wiring.foundation import Foundation
from zhumq.broker.wiring.observation import Observation
from zhumq.protocol.api import ApiKey
from zhumq.storage.disk_room import DiskRoom

FETCH_SESSION_ID_MAX: Final = 2**31 - 1


def all_handlers(
    config: BrokerConfig,
    base: Foundation,
    coordinators: Coordinators,
    bound: Mapping[str, str],
    produce: ProduceHandler,
    authentication: Authentication,
    quotas: ClientQuotas,
    observation: Observation,
    audit_reader: AuditReader | None,
    disk_room: DiskRoom,
    *,
    has_authorizer: bool,
) -> dict[ApiKey, Handler]:
    """The handler of each API that this broker serves."""
    settings = base.settings
    store, metadata_client, replicas = base.store, base.metadata_client, base.replicas
    groups, transactions = coordinators.groups, coordinators.transactions
    entries = ConfigEntries(settings, bound)
    draw = random.SystemRandom()
    sessions = FetchSessions(
        settings.integer("max.incremental.fetch.session.cache.slots"),
        lambda: draw.randint(1, FETCH_SESSION_ID_MAX),
    )
    configs = ConfigsHandler(
        config.broker_id, store, metadata_client, entries, has_modes=config.zookeeper is not None
    )
    handlers: dict[ApiKey, Handler] = {}
    families = (
        produce,
        FetchHandler(
            replicas,
            store,
            sessions,
            base.clock,
            answer_bytes_max=settings.integer("fetch.max.bytes"),
            quotas=quotas,
            selects_by_rack=settings.text("replica.selector.class") in RACK_SELECTORS,
        ),
        OffsetsHandler(replicas),
        LookupHandler(coordinators.lookups.routed, store),
        ScheduleHandler(coordinators.delays.routed),
        MetadataHandler(
            store,
            metadata_client,
            lambda: handlers,
            auto_create_topics=settings.boolean("auto.create.topics.enable"),
        ),
        TopicsHandler(
            store,
            metadata_client,
            entries.of_topic,
            deletion_enabled=settings.boolean("delete.topic.enable"),
        ),
        configs,
        ProducersHandler(metadata_client, replicas, transactions.service),
        WritingProducersHandler(observation.seen_producers),
        HistoryHandler(observation.history),
        AuditLogHandler(audit_reader),
        LogDirsHandler(replicas, config.data_dir, disk_room),
        ReassignmentsHandler(
            store, metadata_client, replicas.ask_log_ends, replicas.elect_preferred
        ),
        FindCoordinatorHandler(
            {
                CoordinatorKind.GROUP: Coordinated(
                    noun="group",
                    topic=groups.topic,
                    partition_for=groups.service.partition_for,
                ),
                CoordinatorKind.TRANSACTION: Coordinated(
                    noun="transactional id",
                    topic=transactions.topic,
                    partition_for=transactions.service.partition_for,
                ),
            },
            store,
        ),
        GroupsHandler(groups.service),
        TransactionsHandler(
            transactions.service,
            coordinators.markers.appender,
            groups.topic,
            groups.service.partition_for,
            store,
        ),
        AclsHandler(store, metadata_client, has_authorizer=has_authorizer),
        authentication,
        ScramCredentialsHandler(store, metadata_client),
        QuotasHandler(store, metadata_client),
    )
    for family in families:
        handlers.update(family.handlers())
    handlers.update(coordinators.delivery.handlers(configs))
    return handlers
