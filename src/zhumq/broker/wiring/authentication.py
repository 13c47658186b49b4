"""Wiring of authentication: the SASL settings of each listener, the users, and the first user."""

import logging
from collections.abc import Callable

from zhumq.broker.authentication import Authentication
from zhumq.broker.config import BrokerConfig
from zhumq.broker.password_check import PasswordChecker
from zhumq.broker.sasl_settings import SaslConfig, sasl_config
from zhumq.broker.user_credentials import UserCredentials
from zhumq.broker.users import StoredUsers, ensure_admin
from zhumq.broker.wiring.membership import Membership
from zhumq.host.clock import Clock
from zhumq.model.errors import SettingInvalid
from zhumq.security.audit import AuditEvent

logger = logging.getLogger(__name__)


async def open_authentication(
    config: BrokerConfig,
    member: Membership,
    clock: Clock,
    on_login: Callable[[AuditEvent], None],
) -> Authentication:
    """The authentication of all listeners with SASL; without one it refuses SASL. Raises SettingInvalid."""
    store = member.store
    configs = _configs(config)
    if config.admin_user is not None:
        users = StoredUsers(store)
        if await ensure_admin(users, config.admin_user, config.admin_password):
            logger.info("created the user %r of --admin-user", config.admin_user)
    # Made-up credentials are all that the secret is for.
    secret = member.secret() if configs else b""
    credentials = UserCredentials(lambda: store.image.security.users, secret)
    return Authentication(configs, credentials, PasswordChecker(credentials), clock, on_login)


def _configs(config: BrokerConfig) -> dict[str, SaslConfig]:
    configs: dict[str, SaslConfig] = {}
    for listener in (*config.listeners, config.http, *([config.push] if config.push else [])):
        if not listener.protocol.uses_sasl:
            continue
        try:
            found = sasl_config(config.settings.of_listener(listener.name))
        except SettingInvalid as reason:
            raise SettingInvalid(f"listener {listener.name}: {reason}") from None
        configs[listener.name] = found
        if found.tokens is not None and found.tokens.accepts_unsecured:
            logger.warning(
                "listener %s accepts tokens without a signature: anyone can log in as any user"
                " (sasl.oauthbearer.unsecured.allowed)",
                listener.name,
            )
    return configs
