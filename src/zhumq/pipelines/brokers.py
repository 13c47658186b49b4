"""The brokers of a run: their address, and the security settings as they were given."""

from dataclasses import dataclass, field
from typing import Final

from zhumq.client.security import ClientSecurity
from zhumq.spark.security_options import PREFIX, SecurityOptions

BOOTSTRAP_OPTION: Final = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """Where a pipeline reads and writes its topics."""

    bootstrap: str
    settings: SecurityOptions = field(default_factory=SecurityOptions)

    def options(self) -> dict[str, str]:
        """The options of `format("zhumq")`. Secrets by reference stay references."""
        return {
            BOOTSTRAP_OPTION: self.bootstrap,
            **{f"{PREFIX}{name}": value for name, value in self.settings.settings},
        }

    def security(self) -> ClientSecurity:
        """Raises SecurityInvalid."""
        return self.settings.security()
