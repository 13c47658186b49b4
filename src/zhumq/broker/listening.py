"""What the listeners of a broker share: the error when one cannot be opened, and how long one drains."""

from typing import Final

from zhumq.model.address import Address
from zhumq.model.errors import SettingInvalid

DRAIN_SECONDS: Final = 2.0  # how long a stop waits for answers in progress


def cannot_listen(flag: str, address: Address, reason: OSError) -> SettingInvalid:
    # The system's message repeats the address; the reason is its last part.
    why = (reason.strerror or str(reason)).rpartition(": ")[2]
    return SettingInvalid(f"cannot listen on {flag} {address}: {why}; choose another with {flag}")
