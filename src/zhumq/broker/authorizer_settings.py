"""Settings of authorization, with Kafka's names."""

from collections.abc import Iterable
from typing import Final

from zhumq.model.errors import SettingInvalid
from zhumq.model.settings import Setting, Settings, SettingType
from zhumq.security.authorizer import Authorizer

OURS: Final = "zhumq"
KAFKAS: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

AUTHORIZER_SETTINGS: Final = (
    Setting(
        name="authorizer.class.name",
        type=SettingType.STRING,
        default="",
        allowed=("", OURS, KAFKAS),
        documentation=(
            f"`{OURS}`, or Kafka's `{KAFKAS}`, which means the same: ACLs decide what each principal may do."
            " Empty: everyone who can connect may do everything."
        ),
    ),
    Setting(
        name="super.users",
        type=SettingType.STRING,
        default="",
        documentation=(
            "Principals that may do everything, whatever the ACLs say: `User:alice;User:bob`."
        ),
    ),
    Setting(
        name="allow.everyone.if.no.acl.found",
        type=SettingType.BOOLEAN,
        default="false",
        documentation="Whether everyone may do everything with a resource that no ACL is about.",
    ),
)


def authorizer_of(settings: Settings, more_super_users: Iterable[str] = ()) -> Authorizer | None:
    """The authorizer that the settings ask for. Raises SettingInvalid."""
    super_users = _super_users(settings.text("super.users")) | frozenset(more_super_users)
    if not settings.text("authorizer.class.name"):
        return None
    return Authorizer(
        super_users=super_users,
        allow_if_no_acl_found=settings.boolean("allow.everyone.if.no.acl.found"),
    )


def _super_users(text: str) -> frozenset[str]:
    principals = [part.strip() for part in text.split(";") if part.strip()]
    for principal in principals:
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise SettingInvalid(
                f"super.users={text!r} is not usable: {principal!r} is no principal, such as User:alice;"
                " separate several by semicolons"
            )
    return frozenset(principals)
