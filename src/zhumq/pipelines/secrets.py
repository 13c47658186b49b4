"""Secrets of pipeline files: they are given by reference, so that no file, status or checkpoint holds them."""

import re
from collections.abc import Mapping
from typing import Final

from zhumq.client.jaas import parse_jaas
from zhumq.pipelines.document import Field
from zhumq.spark.security_options import PREFIX, is_security_option

JAAS: Final = "sasl.jaas.config"
_JAAS_SECRETS: Final = ("password", "clientSecret")
_SECRET_ENDS: Final = (".password", ".secret", "ssl.keystore.key", "ssl.key.pem")
REFERENCE: Final = re.compile(r"\$\{(?:env|file):[^}]+\}")
# A password in a URL would be in errors and logs, whatever it was given by.
SECRET_IN_URL: Final = re.compile(
    r"(?i)(password|passwd|pwd|passphrase|secret|token)=|//[^/?@]*:[^/?@]*@"
)
EXAMPLE: Final = "${env:NAME} or ${file:/path}"


def security_texts(field: Field) -> dict[str, str]:
    """The settings of a field whose names are those of Kafka's clients. Fails for a secret in the file."""
    fields = field.fields()
    found = fields.as_texts(keeps_references=True)
    for name, part in fields:
        setting = name.removeprefix(PREFIX)
        if is_literal_secret(setting, found[name]):
            # Without the value, which may end up in a log.
            part.fail(f"holds a secret: give it by reference, as {EXAMPLE}")
    return found


def without_prefix(field: Field) -> dict[str, str]:
    """The settings of the field `security`, which has no other ones."""
    found = security_texts(field)
    for name, part in field.fields():
        if not is_security_option(f"{PREFIX}{name}"):
            part.fail("is no security setting: give security.protocol, sasl.* or ssl.*")
    return found


def is_literal_secret(name: str, text: str) -> bool:
    """Whether a setting holds a secret itself. An empty one is none."""
    if not text or REFERENCE.fullmatch(text.strip()):
        return False
    if name == JAAS:
        return any(
            value and not REFERENCE.fullmatch(value) for value in _jaas_secrets(text).values()
        )
    return name.endswith(_SECRET_ENDS)


def _jaas_secrets(text: str) -> Mapping[str, str]:
    try:
        options = parse_jaas(text).options
    except ValueError:
        return {}  # reported where the settings are used
    return {name: options[name] for name in _JAAS_SECRETS if name in options}
