"""Schedule: lists and cancels the delayed messages of a partition, at the leader of their shard."""

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.coordinators.delay_routes import RoutedDelays
from zhumq.model.errors import BrokerError
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.delays import ScheduleRequest, ScheduleResponse


class ScheduleHandler:
    """Passes requests on, and refusals back with their reason."""

    def __init__(self, delays: RoutedDelays) -> None:
        self._delays = delays

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.SCHEDULE: self.schedule}

    async def schedule(
        self, _context: RequestContext, request: ScheduleRequest
    ) -> ScheduleResponse:
        try:
            return await self._delays.schedule(request)
        except BrokerError as reason:
            return ScheduleResponse(error_code=reason.code, error_message=str(reason))
