"""`zhumq.Admin`: a connection to the brokers that has the operations of an administrator as methods."""

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.dead_letters import count_dead_letters, read_dead_letters, replay_dead_letters
from zhumq.admin.lookup import lookup
from zhumq.admin.retention import explain_retention
from zhumq.admin.schedule import cancel_scheduled, list_scheduled
from zhumq.admin.sessions import list_sessions, resume_session
from zhumq.admin.subscriptions import release_topic, subscription_groups
from zhumq.admin.topics import create_topic, delete_topic, list_topics
from zhumq.client.retrying_admin import RETRY_SECONDS
from zhumq.client.security import Security, as_security
from zhumq.client.waiting import Waiting


class Admin(ClusterConnection):
    """Operations of an administrator. Every other operation of `zhumq.admin` takes it as its connection.

    >>> import zhumq
    >>> with zhumq.Admin(bootstrap) as admin:
    ...     admin.create_topic("invoices", partitions=2)
    ...     "invoices" in admin.topics()
    True
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        push: str | None = None,
        security: Security = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """`security` is a ClientSecurity, or settings with Kafka's names. `retry_seconds` is how long a request is
        repeated while no broker, or not the right one, answers."""
        secured = as_security(security)
        super().__init__(
            bootstrap,
            push=push,
            waiting=Waiting(bootstrap, secured),
            security=secured,
            retry_seconds=retry_seconds,
        )

    create_topic = create_topic
    delete_topic = delete_topic
    sessions = list_sessions
    resume_session = resume_session
    subscription_groups = subscription_groups
    release_topic = release_topic
    dead_letter_counts = count_dead_letters
    dead_letters = read_dead_letters
    replay = replay_dead_letters
    lookup = lookup
    scheduled = list_scheduled
    cancel_scheduled = cancel_scheduled
    explain_retention = explain_retention

    def topics(self) -> dict[str, int]:
        """Topics with their partition counts."""
        return {each.topic: each.partitions for each in list_topics(self)}

    def dead_letter_topics(self) -> dict[str, int]:
        """Dead-letter topics with how many dead letters of each are left to replay."""
        return {name: count.left for name, count in self.dead_letter_counts().items()}
