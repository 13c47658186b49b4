"""Kafka's own commands over SASL_SSL: users, rules and quotas by an administrator, topics and messages by a user."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from conformance.secure.tools import Tools

USER = "alice"
PREFIX = "secure-"
RECORDS = 20
PRINCIPALS = (f"User:{USER}", f"User:CN={USER}")  # by password, and by certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    admin: Tools
    by_password: Tools
    by_certificate: Tools
    as_other: Tools  # a user with another password than the one it is given
    password: str

    def before_clients(self) -> dict[str, Callable[[], None]]:
        """What gives the clients their user and their rights, and so comes first."""
        return {
            "kafka-configs makes a user with SCRAM-SHA-512": self.make_user,
            "a user without rules may do nothing": self.refuse_without_rules,
            "kafka-acls grants prefixed topics and groups": self.grant,
        }

    def beside_clients(self) -> dict[str, Callable[[], None]]:
        return {
            "kafka-configs describes users, changes and deletes credentials": self.credentials,
            "kafka-acls lists, denies and removes rules": self.rules,
            "kafka-configs sets, describes and deletes quotas of users": self.user_quotas,
            "kafka-configs sets, describes and deletes quotas of clients": self.client_quotas,
            "kafka-configs sets, describes and deletes quotas of addresses": self.address_quotas,
            "a user may not do what is the administrator's": self.refuse_administration,
            "kafka-topics SASL_SSL": lambda: topics(self.by_password, "topics-sasl"),
            "kafka-topics SSL": lambda: topics(self.by_certificate, "topics-ssl"),
            "console producer, consumer and groups SASL_SSL": lambda: messages(
                self.by_password, "console-sasl"
            ),
            "console producer, consumer and groups SSL": lambda: messages(
                self.by_certificate, "console-ssl"
            ),
            "verifiable producer and consumer SASL_SSL": lambda: verifiable(
                self.by_password, "verifiable-sasl"
            ),
            "verifiable producer and consumer SSL": lambda: verifiable(
                self.by_certificate, "verifiable-ssl"
            ),
        }

    def make_user(self) -> None:
        self.admin.run(
            *_alter_user(USER), "--add-config", f"SCRAM-SHA-512=[password={self.password}]"
        )
        found = self.admin.run(*_describe("users", USER))
        assert re.search(
            rf"SCRAM credential configs for user-principal '{USER}' are .*SCRAM-SHA-512=", found
        ), found

    def refuse_without_rules(self) -> None:
        topic = f"{PREFIX}unknown"
        create = ("kafka-topics", "--create", "--topic", topic)
        for tools in (self.by_password, self.by_certificate):
            tools.fails("TopicAuthorizationException", *create)
            assert tools.run("kafka-topics", "--list").strip() == ""
        words = "Authentication failed"
        self.as_other.fails(words, "kafka-topics", "--list")

    def grant(self) -> None:
        principals = [part for each in PRINCIPALS for part in ("--allow-principal", each)]
        self.admin.run(
            "kafka-acls", "--add", *principals, "--operation", "All",
            "--topic", PREFIX, "--group", PREFIX, "--resource-pattern-type", "prefixed",
        )  # fmt: skip
        found = self.admin.run("kafka-acls", "--list")
        for kind in ("TOPIC", "GROUP"):
            assert f"resourceType={kind}, name={PREFIX}, patternType=PREFIXED" in found, found
        for principal in PRINCIPALS:
            assert f"principal={principal}, host=*, operation=ALL, permissionType=ALLOW" in found, (
                found
            )

    def credentials(self) -> None:
        user = "bob"
        for mechanism, iterations in (("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 4096)):
            self.admin.run(
                *_alter_user(user), "--add-config",
                f"{mechanism}=[iterations={iterations},password=bob-secret]",
            )  # fmt: skip
        found = self.admin.run(*_describe("users", user))
        assert "SCRAM-SHA-256=iterations=8192" in found, found
        assert "SCRAM-SHA-512=iterations=4096" in found, found
        self.admin.run(*_alter_user(user), "--delete-config", "SCRAM-SHA-256")
        found = self.admin.run(*_describe("users", user))
        assert "SCRAM-SHA-256" not in found, found
        assert "SCRAM-SHA-512" in found, found
        self.admin.run(*_alter_user(user), "--delete-config", "SCRAM-SHA-512")
        everyone = self.admin.run("kafka-configs", "--describe", "--entity-type", "users")
        assert f"'{user}'" not in everyone, everyone
        assert f"'{USER}'" in everyone, everyone
        self.admin.fails("ResourceNotFound", *_alter_user(user), "--delete-config", "SCRAM-SHA-512")

    def rules(self) -> None:
        topic = f"{PREFIX}denied"
        self.admin.run("kafka-topics", "--create", "--topic", topic)
        rule = (
            "--deny-principal",
            f"User:{USER}",
            "--deny-host",
            "*",
            "--operation",
            "Write",
            "--topic",
            topic,
        )
        self.admin.run("kafka-acls", "--add", *rule)
        found = self.admin.run("kafka-acls", "--list", "--topic", topic)
        assert f"principal=User:{USER}, host=*, operation=WRITE, permissionType=DENY" in found, (
            found
        )
        produce = ("kafka-console-producer", "--topic", topic)
        self.by_password.fails("TopicAuthorizationException", *produce, given="denied\n")
        self.by_certificate.run(*produce, given="allowed\n")
        self.admin.run("kafka-acls", "--remove", "--force", *rule)
        self.by_password.run(*produce, given="allowed\n")
        # The short forms: several operations on several resources at once.
        carol = ("--allow-principal", "User:carol", "--topic", topic)
        self.admin.run("kafka-acls", "--add", "--producer", *carol)
        self.admin.run("kafka-acls", "--add", "--consumer", "--group", "carols", *carol)
        found = self.admin.run("kafka-acls", "--list", "--principal", "User:carol")
        for operation in ("WRITE", "DESCRIBE", "CREATE", "READ"):
            assert f"principal=User:carol, host=*, operation={operation}" in found, found
        self.admin.run("kafka-acls", "--remove", "--force", "--topic", topic)
        self.admin.run("kafka-acls", "--remove", "--force", "--group", "carols")
        found = self.admin.run("kafka-acls", "--list", "--principal", "User:carol")
        assert "carol" not in found.partition("\n")[2], found
        self.admin.run("kafka-topics", "--delete", "--topic", topic)

    def user_quotas(self) -> None:
        quota = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=150"
        names = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        self._quota(("users", "dora"), quota, names, "user-principal 'dora'")
        self._quota(("users", ""), quota, names, "the default user-principal")
        both = ("users", "dora", "clients", "app")
        self._quota(both, quota, names, "user-principal 'dora', client-id 'app'")

    def client_quotas(self) -> None:
        names = ("producer_byte_rate", "request_percentage")
        quota = "producer_byte_rate=1024,request_percentage=50"
        self._quota(("clients", "app"), quota, names, "client-id 'app'")
        self._quota(("clients", ""), quota, names, "the default client-id")

    def address_quotas(self) -> None:
        names = ("connection_creation_rate",)
        self._quota(("ips", "192.0.2.1"), "connection_creation_rate=50", names, "ip '192.0.2.1'")
        self._quota(("ips", ""), "connection_creation_rate=5000", names, "the default ip")

    def _quota(
        self, entity: tuple[str, ...], quota: str, names: tuple[str, ...], shown: str
    ) -> None:
        """Set a quota, see it described, delete it, see it gone."""
        pairs = zip(entity[::2], entity[1::2], strict=True)
        place = [
            part
            for kind, name in pairs
            for part in (
                "--entity-type",
                kind,
                *(("--entity-name", name) if name else ("--entity-default",)),
            )
        ]
        self.admin.run("kafka-configs", "--alter", *place, "--add-config", quota)
        found = self.admin.run("kafka-configs", "--describe", *place)
        for value in quota.split(","):
            assert re.search(
                rf"Quota configs for {re.escape(shown)} are .*{value}(\.0)?\b", found
            ), found
        self.admin.run("kafka-configs", "--alter", *place, "--delete-config", ",".join(names))
        found = self.admin.run("kafka-configs", "--describe", *place)
        assert names[0] not in found, found

    def refuse_administration(self) -> None:
        user = self.by_password
        words = "ClusterAuthorizationException"
        user.fails(words, "kafka-acls", "--list")
        user.fails(words, *_alter_user(USER), "--add-config", "SCRAM-SHA-512=[password=other]")
        user.fails(words, *_alter_user(USER), "--add-config", "producer_byte_rate=1")
        user.fails(words, *_describe("users", USER))


def _alter_user(user: str) -> tuple[str, ...]:
    return ("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", user)


def _describe(kind: str, name: str) -> tuple[str, ...]:
    return ("kafka-configs", "--describe", "--entity-type", kind, "--entity-name", name)


def topics(tools: Tools, word: str) -> None:
    """Create, list, describe, change and delete a topic."""
    topic = f"{PREFIX}{word}"
    named = ("kafka-topics", "--topic", topic)
    tools.run(*named, "--create", "--partitions", "2", "--config", "retention.ms=3600000")
    assert topic in tools.run("kafka-topics", "--list").split()
    found = tools.run(*named, "--describe")
    assert "PartitionCount: 2" in found, found
    assert "retention.ms=3600000" in found, found
    tools.run(*named, "--alter", "--partitions", "3")
    assert "PartitionCount: 3" in tools.run(*named, "--describe")
    tools.run(*named, "--delete")
    assert topic not in tools.run("kafka-topics", "--list").split()


def messages(tools: Tools, word: str) -> None:
    """Produce, consume in a group, describe, reset and delete the group."""
    topic = group = f"{PREFIX}{word}"
    tools.run("kafka-topics", "--create", "--topic", topic)
    lines = [f"message {number}" for number in range(RECORDS)]
    tools.run("kafka-console-producer", "--topic", topic, given="\n".join(lines) + "\n")
    found = tools.run(
        "kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning",
        "--max-messages", str(RECORDS), "--timeout-ms", "60000",
    )  # fmt: skip
    assert found.split("\n")[:RECORDS] == lines, found
    groups = ("kafka-consumer-groups", "--group", group)
    assert group in tools.run("kafka-consumer-groups", "--list").split()
    # GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG ...
    described = tools.run(*groups, "--describe")
    assert re.search(rf"{group}\s+{topic}\s+0\s+{RECORDS}\s+{RECORDS}\s+0\b", described), described
    tools.run(*groups, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    described = tools.run(*groups, "--describe")
    assert re.search(rf"{group}\s+{topic}\s+0\s+0\s+{RECORDS}\s+{RECORDS}\b", described), described
    tools.run(*groups, "--delete")
    tools.run("kafka-topics", "--delete", "--topic", topic)


def verifiable(tools: Tools, word: str) -> None:
    """The producer and the consumer of Kafka's own system tests."""
    topic, count = f"{PREFIX}{word}", 2000
    tools.run("kafka-topics", "--create", "--topic", topic)
    sent = tools.run(
        "kafka-verifiable-producer", "--topic", topic, "--max-messages", str(count), "--acks", "-1"
    )
    assert sent.count('"producer_send_success"') == count, sent[-2000:]
    read = tools.run(
        "kafka-verifiable-consumer", "--topic", topic, "--group-id", topic, "--max-messages", str(count),
        "--reset-policy", "earliest",
    )  # fmt: skip
    consumed = [int(each) for each in re.findall(r'"name":"records_consumed","count":(\d+)', read)]
    assert sum(consumed) == count, read[-2000:]
    tools.run("kafka-topics", "--delete", "--topic", topic)
