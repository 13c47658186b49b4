"""History: charts of this broker, its topics and its groups."""

from typing import Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.broker.history import History
from zhumq.history.chart import Grid
from zhumq.history.fields import FIELDS, Over, Subject
from zhumq.model.errors import BrokerError, InvalidConfig, InvalidRequest, StorageFailed
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.history import (
    HistoryField,
    HistoryPoint,
    HistoryRequest,
    HistoryResponse,
)

SUBJECTS: Final = (Subject.BROKER, Subject.TOPIC, Subject.GROUP)  # by their numbers


class HistoryHandler:
    """Reads charts, if this broker keeps a history."""

    def __init__(self, history: History | None) -> None:
        self._history = history

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.HISTORY: self.history}

    async def history(self, _context: RequestContext, request: HistoryRequest) -> HistoryResponse:
        try:
            return await self._chart(request)
        except BrokerError as reason:
            return HistoryResponse(error_code=reason.code, error_message=str(reason))

    async def _chart(self, request: HistoryRequest) -> HistoryResponse:
        if self._history is None:
            raise InvalidConfig("this broker keeps no history: it has history.enable=false")
        if not 0 <= request.subject < len(SUBJECTS):
            raise InvalidRequest(f"there is no history of subject {request.subject}")
        subject = SUBJECTS[request.subject]
        grid = Grid.checked(request.start_ms, request.step_ms, request.count)
        try:
            points = await self._history.chart(grid, subject, request.name)
        except OSError as reason:
            raise StorageFailed(f"the history cannot be read: {reason}") from reason
        return HistoryResponse(
            fields=[
                HistoryField(name=each.name, is_of_cluster=each.over_brokers is Over.MAX)
                for each in FIELDS[subject]
            ],
            points=[HistoryPoint(values=list(values or ())) for values in points],
        )
