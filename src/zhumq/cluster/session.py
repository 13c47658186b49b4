"""A broker's session and its registration in it. Pure: link events in, session state out."""

from dataclasses import dataclass, replace
from typing import Self

from zhumq.cluster.store import SessionState
from zhumq.cluster.znodes import LinkState

NO_SESSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a broker knows of its session.

    The state is derived from these fields and never stored, so no order of events leaves a broker
    connected but not registered.
    """

    link: LinkState = LinkState.SUSPENDED
    # The session of the last connection; NO_SESSION once it has ended.
    session_id: int = NO_SESSION
    # The link was down for the session timeout: the ensemble may have expired the session.
    is_presumed_lost: bool = False
    is_closed: bool = False
    # The session that owns this broker's registration; None before the first one.
    registered_in: int | None = None
    registered_epoch: int = 0

    @property
    def state(self) -> SessionState:
        if self.is_closed:
            return SessionState.CLOSED
        if self.link is LinkState.LOST or self.is_presumed_lost or self.lacks_registration:
            return SessionState.LOST
        if self.link is LinkState.SUSPENDED:
            return SessionState.SUSPENDED
        return SessionState.CONNECTED

    @property
    def broker_epoch(self) -> int | None:
        """The epoch of the registration; None while the session may have expired."""
        if self.registered_in is None or self.state in (SessionState.LOST, SessionState.CLOSED):
            return None
        return self.registered_epoch

    @property
    def lacks_registration(self) -> bool:
        """Whether the broker was registered in an earlier session but not in this one."""
        return self.registered_in is not None and self.registered_in != self.session_id

    def with_link(self, link: LinkState, session_id: int) -> Self:
        """The link changed. The session id counts only if it is connected."""
        if link is LinkState.CONNECTED:
            return replace(self, link=link, session_id=session_id, is_presumed_lost=False)
        if link is LinkState.LOST:
            return replace(self, link=link, session_id=NO_SESSION)
        if self.link is LinkState.LOST:
            return self  # There is no session to suspend.
        return replace(self, link=link)

    def with_session_timeout(self) -> Self:
        """The link was down for the session timeout."""
        if self.link is LinkState.CONNECTED:
            return self
        return replace(self, is_presumed_lost=True)

    def with_registration(self, session_id: int, epoch: int) -> Self:
        """The ensemble has a registration of this broker, owned by this session."""
        return replace(self, registered_in=session_id, registered_epoch=epoch)

    def with_close(self) -> Self:
        return replace(self, is_closed=True)
