"""The security options of the source and the sink, which travel to the executors as they were given."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from zhumq.client.security import ClientSecurity

PREFIX: Final = "kafka."
NAMES: Final = ("security.", "sasl.", "ssl.", "https.")
_KEPT_MAX: Final = 8


@dataclass(frozen=True, slots=True, repr=False)
class SecurityOptions:
    """Kafka's client settings, with `${env:NAME}` and `${file:PATH}` in place of what they refer to.

    Each process replaces them for itself, so that a secret by reference is in no task and in no plan.
    """

    settings: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"SecurityOptions({', '.join(name for name, _ in self.settings)})"

    def security(self) -> ClientSecurity:
        """The security of this process's connections. Raises SecurityInvalid."""
        return _security_of(self.settings)


def is_security_option(name: str) -> bool:
    return name.startswith(PREFIX) and name.removeprefix(PREFIX).startswith(NAMES)


def security_options(options: Mapping[str, str]) -> SecurityOptions:
    """Those of the options of a read or a write, by their names in lower case."""
    given = {
        name.removeprefix(PREFIX): value
        for name, value in options.items()
        if is_security_option(name)
    }
    return SecurityOptions(tuple(sorted(given.items())))


# Kept, as a query connects at every trigger: a file or variable is read, and warned of, once a process.
@lru_cache(maxsize=_KEPT_MAX)
def _security_of(settings: tuple[tuple[str, str], ...]) -> ClientSecurity:
    return ClientSecurity.of(dict(settings), origin="kafka.*")
