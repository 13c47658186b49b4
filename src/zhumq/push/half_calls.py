"""Calls about half messages: the coordinator of a producer group, and what operators ask."""

from zhumq.coordinators.half_message_service import LISTED_MAX
from zhumq.coordinators.staged_reader import StagedMissing
from zhumq.half_messages.message import ENDED, HalfMessage, HalfState
from zhumq.half_messages.requests import Decision, ListHalfMessages
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.callers import Caller
from zhumq.push.frames import Refusal, code_of
from zhumq.push.half_stream import (
    DECISIONS,
    answer_code,
    body_frame,
    check_producer,
)
from zhumq.push.services import PushServices
from zhumq.security.acl import CLUSTER_NAME, Operation, ResourceType

_NOT_PERMITTED = "this is not permitted to the principal of the call"


class HalfCalls:
    """The unary methods of the gRPC service about half messages."""

    def __init__(self, services: PushServices) -> None:
        self._services = services

    async def coordinator(
        self, request: pb.HalfCoordinatorRequest, caller: Caller
    ) -> pb.HalfCoordinatorResponse:
        try:
            check_producer(caller, request.group)
            broker_id = await self._services.half_messages.coordinator_of(request.group)
        except Refusal as refusal:
            return pb.HalfCoordinatorResponse(code=refusal.code, message=str(refusal))
        except BrokerError as error:
            return pb.HalfCoordinatorResponse(code=code_of(error), message=str(error))
        address = self._services.push_addresses().get(broker_id, "")
        if not address:
            return pb.HalfCoordinatorResponse(
                code=pb.UNAVAILABLE,
                message=f"broker {broker_id}, which coordinates group {request.group!r}, does not push",
            )
        return pb.HalfCoordinatorResponse(broker_id=broker_id, address=address)

    async def listed(self, request: pb.ListHalfRequest, caller: Caller) -> pb.ListHalfResponse:
        known = {each.value for each in HalfState}
        asked = ListHalfMessages(
            group=request.group,
            # States that this broker does not know are of no message.
            states=frozenset(HalfState(each) for each in request.states if each in known),
            limit=min(max(request.limit, 1), LISTED_MAX),
        )
        try:
            found = await self._services.half_messages.listed(asked)
        except BrokerError as error:
            return pb.ListHalfResponse(code=code_of(error), message=str(error))
        return pb.ListHalfResponse(
            messages=[
                self._frame(each)
                for each in found.messages
                if caller.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.group)
            ],
            has_more=found.has_more,
        )

    async def show(self, request: pb.ShowHalfRequest, caller: Caller) -> pb.ShowHalfResponse:
        try:
            found = await self._services.half_messages.find(request.id)
        except BrokerError as error:
            return pb.ShowHalfResponse(code=code_of(error), message=str(error))
        if found is None or not caller.sees(
            Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, found.group
        ):
            return pb.ShowHalfResponse(code=pb.UNKNOWN_HALF_MESSAGE, message=_unknown(request.id))
        response = pb.ShowHalfResponse(half_message=self._frame(found))
        if found.state not in ENDED and caller.may(
            Operation.READ, ResourceType.TOPIC, found.target.topic
        ):
            try:
                body = self._services.half_messages.body_of(found)
            except StagedMissing as reason:
                return pb.ShowHalfResponse(code=pb.INTERNAL, message=str(reason))
            except BrokerError as error:
                return pb.ShowHalfResponse(code=code_of(error), message=str(error))
            response.body.CopyFrom(body_frame(body))
        return response

    async def decide(self, request: pb.DecideHalfRequest, caller: Caller) -> pb.DecideHalfResponse:
        decision = DECISIONS.get(request.decision)
        if decision not in (Decision.COMMIT, Decision.ROLL_BACK):
            return pb.DecideHalfResponse(code=pb.INVALID, message="commit it, or roll it back")
        # Instead of its producer: this is for those who run the cluster.
        if not caller.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
            return pb.DecideHalfResponse(code=pb.NOT_AUTHORIZED, message=_NOT_PERMITTED)
        try:
            found = await self._services.half_messages.find(request.id)
        except BrokerError as error:
            return pb.DecideHalfResponse(code=code_of(error), message=str(error))
        if found is None:
            return pb.DecideHalfResponse(code=pb.UNKNOWN_HALF_MESSAGE, message=_unknown(request.id))
        answer = await self._services.half_messages.decide_for(found, decision)
        message = answer.message
        if answer.code is not ErrorCode.NONE:
            message = f"{message} ({answer.code.name})"
        return pb.DecideHalfResponse(code=answer_code(answer), message=message)

    def _frame(self, message: HalfMessage) -> pb.HalfMessage:
        return pb.HalfMessage(
            id=message.id,
            group=message.group,
            topic=message.target.topic,
            partition=message.target.partition,
            state=message.state,
            prepared_ms=message.prepared_ms,
            checks=message.checks,
            changed_ms=message.changed_ms,
            reason=message.reason,
            broker_id=self._services.broker_id,
        )


def _unknown(message_id: str) -> str:
    return f"there is no half message {message_id!r} here"
