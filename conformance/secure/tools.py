"""Kafka's own commands, from its jars, with the settings of one user."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Certificate

WAIT_S = 120
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


class CommandFailed(Exception):
    """A command ended with an error; the message is all that it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The commands as one user of a listener."""

    java: tuple[str, ...]
    bootstrap: str
    properties: Path  # the settings of the Java client
    log: Path

    def run(self, command: str, *arguments: str, given: str = "") -> str:
        """The standard output of a command. Raises CommandFailed."""
        done = subprocess.run(
            [
                *self.java, CLASSES[command], "--bootstrap-server", self.bootstrap,
                "--command-config", str(self.properties), *arguments,
            ],
            input=given, capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        output = f"$ {command} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        with self.log.open("a") as log:
            log.write(output)
        # The console producer ends well after errors that it logged.
        if done.returncode != 0 or " ERROR " in done.stderr:
            raise CommandFailed(output)
        return done.stdout

    def fails(self, words: str, command: str, *arguments: str, given: str = "") -> None:
        """Check that the command fails with these words."""
        output = "it did not fail"
        try:
            self.run(command, *arguments, given=given)
        except CommandFailed as error:
            output = str(error)
        assert words in output, f"expected {words!r} in: {output}"


def scram_properties(file: Path, *, ca: Path, user: str, password: str) -> Path:
    """Write the settings of a user with a password."""
    return _write(
        file,
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{LOGIN} required username="{user}" password="{password}";',
        },
    )


def certificate_properties(file: Path, *, ca: Path, certificate: Certificate) -> Path:
    """Write the settings of a user with a certificate."""
    return _write(
        file,
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate.combined_file),
        },
    )


def _write(file: Path, settings: dict[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
