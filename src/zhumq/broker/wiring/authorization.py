"""Wiring of authorization: the authorizer of the settings over the ACLs of the newest metadata image."""

from zhumq.broker.authorization import AclAuthorization, OnDecision
from zhumq.broker.authorizer_settings import authorizer_of
from zhumq.broker.config import BrokerConfig
from zhumq.cluster.store import MetadataStore


def open_authorization(
    config: BrokerConfig, store: MetadataStore, on_decision: OnDecision
) -> AclAuthorization | None:
    """None without an authorizer: everything is permitted. Raises SettingInvalid."""
    settings = config.settings
    admin = () if config.admin_user is None else (f"User:{config.admin_user}",)
    authorizer = authorizer_of(settings, admin)
    if authorizer is None:
        return None
    authorization = AclAuthorization(
        authorizer,
        lambda: store.image,
        creates_topics=settings.boolean("auto.create.topics.enable"),
        on_decision=on_decision,
    )
    store.watch(authorization.apply)
    return authorization
