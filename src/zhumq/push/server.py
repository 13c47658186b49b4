"""The gRPC server of the push endpoint. The only module of the package that imports grpc."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from zhumq.model.errors import BrokerError
from zhumq.model.ids import ANONYMOUS, TopicPartition
from zhumq.net.tls_config import ClientAuth
from zhumq.net.tls_context import TlsSource
from zhumq.net.tls_material import TlsMaterial, decrypted_key
from zhumq.net.tls_principal import principal_of_pem
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.callers import Authenticate, Caller, host_of
from zhumq.push.frames import MODE_CODES, Refusal, code_of, leaders
from zhumq.push.half_calls import HalfCalls
from zhumq.push.half_stream import serve_half_stream
from zhumq.push.services import PushServices
from zhumq.push.sessions import RELOAD_SECONDS
from zhumq.push.stream import serve_stream
from zhumq.push.wire import WireBroken
from zhumq.security.acl import Operation, ResourceType
from zhumq.security.login import Login, NotAuthenticated
from zhumq.security.principal_mapping import NoRuleMatches, PrincipalMapping

logger = logging.getLogger(__name__)

Frame = TypeVar("Frame", bound=Message)  # of a client
Answer = TypeVar("Answer", bound=Message)  # the broker's frame

SERVICE: Final = "zhumq.push.v1.Push"
FRAME_BYTES_MAX: Final = 1 << 20  # of a client's frame: answers are small
STREAMS_PER_CONNECTION_MAX: Final = 100
STOP_SECONDS: Final = 1.0
STOP_SECONDS_MAX: Final = 10.0
ORPHAN_CHECK_SECONDS: Final = 10.0
CANCEL_CHECKS: Final = 5
CANCEL_CHECK_SECONDS: Final = 0.01
AUTHORIZATION: Final = "authorization"  # the key of the metadata with a user or a token
_NOT_PERMITTED: Final = "this is not permitted to the principal of the call"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", -1),  # a record batch is as large as its topic allows
    ("grpc.so_reuseport", 0),  # a port that is in use is an error
    # A connection whose client reads nothing is closed after the sum of these two, with or without streams.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_metadata_size", 16 * 1024),
)


class PushServer:
    """Serves the push endpoint on an address until closed."""

    def __init__(
        self,
        server: grpc.aio.Server,
        services: PushServices,
        host: str,
        port: int,
        absences: asyncio.Task[None],
    ) -> None:
        self._server = server
        self._services = services
        self._absences = absences
        self.address = (host, port)

    @classmethod
    async def open(
        cls,
        services: PushServices,
        host: str,
        port: int,
        *,
        tls: TlsSource | None = None,
        authenticate: Authenticate | None = None,
    ) -> Self:
        """Listen. Raises OSError if the address cannot be bound, SettingInvalid if gRPC cannot use the TLS."""
        if port:
            _check_free(host, port)
        server = grpc.aio.server(options=_OPTIONS)
        mapping = PrincipalMapping() if tls is None else tls.config.mapping
        logins = _Logins(mapping, authenticate)
        server.add_generic_rpc_handlers((_handlers(services, logins),))
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                bound = server.add_insecure_port(where)
            else:
                bound = server.add_secure_port(where, _credentials(tls))
        except RuntimeError as error:
            raise OSError(None, "the address cannot be had") from error
        await server.start()
        absences = asyncio.create_task(_count_absences(services))
        return cls(server, services, host, bound, absences)

    async def close(self) -> None:
        self._services.closing = True
        self._absences.cancel()
        for stream in tuple(self._services.sessions.streams):
            stream.end(Refusal(pb.UNAVAILABLE, "this broker is stopping", retry=True))
        for producer in tuple(self._services.half_streams):
            producer.end(Refusal(pb.UNAVAILABLE, "this broker is stopping", retry=True))
        self._services.unread.end_unread(0.0)
        # A connection whose client reads nothing would delay the stop until its keepalive timeout.
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._server.stop(STOP_SECONDS)
        except TimeoutError:
            logger.warning("push server stopped with connections still open")
        await self._services.endings.finish()
        await self._services.sessions.close()


def _credentials(tls: TlsSource) -> grpc.ServerCredentials:
    """Credentials that gRPC asks for anew at each handshake, so that replaced files are used."""
    requires = tls.config.client_auth is ClientAuth.REQUIRED

    def configuration(material: TlsMaterial) -> "grpc.ServerCertificateConfiguration":
        return grpc.ssl_server_certificate_configuration(
            [(decrypted_key(material), material.certificate_chain)],
            root_certificates=material.trusted or None,
        )

    used = tls.current().material
    current = configuration(used)

    def fetch() -> "grpc.ServerCertificateConfiguration":
        nonlocal current, used
        material = tls.current().material
        if material is not used:
            current, used = configuration(material), material
        return current

    return grpc.dynamic_ssl_server_credentials(
        current, fetch, require_client_authentication=requires
    )


def _check_free(host: str, port: int) -> None:
    """Raise OSError with the reason if the address cannot be bound: gRPC reports it only in its own log."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(error.errno, (error.strerror or str(error)).lower()) from error


async def _count_absences(services: PushServices) -> None:
    """Resume the timers of sessions after the start, then look for sessions that no broker counts."""
    while True:
        try:
            await services.sessions.restore()
            break
        except BrokerError:
            await asyncio.sleep(RELOAD_SECONDS)
    while True:
        await asyncio.sleep(ORPHAN_CHECK_SECONDS)
        try:
            await services.sessions.count_orphans()
        except BrokerError as error:  # A shard is moving, or is not loaded yet: the next time.
            logger.debug("sessions could not be looked through: %s", error)


class _CallWire(Generic[Frame, Answer]):
    """A gRPC call as the wire of a stream."""

    def __init__(
        self, context: "grpc.aio.ServicerContext[Any, Any]", frame_type: type[Frame]
    ) -> None:
        self._context = context
        self._frame_type = frame_type
        self.peer = context.peer()

    async def read(self) -> Frame | None:
        try:
            frame = await self._context.read()
        except (asyncio.CancelledError, grpc.aio.AbortError, grpc.aio.UsageError) as error:
            raise self._broken(error) from error
        if isinstance(frame, self._frame_type):
            return frame
        # grpc.aio.EOF: the client has half-closed, or its call was cancelled. gRPC reports the
        # cancellation separately and maybe later.
        for _ in range(CANCEL_CHECKS):
            if self._context.cancelled():
                raise WireBroken
            await asyncio.sleep(CANCEL_CHECK_SECONDS)
        return None

    async def write(self, frame: Answer) -> None:
        try:
            data = frame.SerializeToString()
            del frame
            await self._context.write(data)
        except (grpc.aio.AbortError, grpc.aio.UsageError, grpc.aio.InternalError) as error:
            raise WireBroken from error

    def _broken(self, error: BaseException) -> BaseException:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            return error
        return WireBroken()


class _Logins:
    """The logins of calls: by their metadata, else by the certificates that TLS has verified."""

    def __init__(self, mapping: PrincipalMapping, authenticate: Authenticate | None) -> None:
        self._mapping = mapping
        self._authenticate = authenticate

    async def of(self, context: "grpc.aio.ServicerContext[Any, Any]") -> Login:
        """User:ANONYMOUS without either. Raises NotAuthenticated and NoRuleMatches."""
        if self._authenticate is not None:
            metadata = dict(context.invocation_metadata() or ())
            header = metadata.get(AUTHORIZATION, "")
            return await self._authenticate(str(header), host_of(context.peer()))
        certificates = context.auth_context().get("x509_pem_cert")
        for certificate in certificates or ():
            return Login(principal=principal_of_pem(certificate, self._mapping))
        return Login(principal=ANONYMOUS)


def _handlers(services: PushServices, logins: _Logins) -> grpc.GenericRpcHandler:
    calls = _Calls(services, logins)
    half = HalfCalls(services)
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Stream": grpc.stream_stream_rpc_method_handler(
                calls.stream,
                request_deserializer=partial(_parse_frame, pb.ClientFrame),
                response_serializer=None,  # _CallWire.write serializes, and then frees the frame
            ),
            "Leaders": calls.unary(calls.leaders, pb.LeadersRequest),
            "ListSessions": calls.unary(calls.list_sessions, pb.ListSessionsRequest),
            "ResumeSession": calls.unary(calls.resume_session, pb.ResumeSessionRequest),
            "ListGroups": calls.unary(calls.list_groups, pb.ListGroupsRequest),
            "Release": calls.unary(calls.release, pb.ReleaseRequest),
            "Half": grpc.stream_stream_rpc_method_handler(
                calls.half,
                request_deserializer=partial(_parse_frame, pb.HalfClientFrame),
                response_serializer=None,
            ),
            "HalfCoordinator": calls.unary(half.coordinator, pb.HalfCoordinatorRequest),
            "ListHalf": calls.unary(half.listed, pb.ListHalfRequest),
            "ShowHalf": calls.unary(half.show, pb.ShowHalfRequest),
            "DecideHalf": calls.unary(half.decide, pb.DecideHalfRequest),
            "ExplainRetention": calls.unary(calls.explain_retention, pb.ExplainRetentionRequest),
        },
    )


def _parse_frame(frame_type: type[Frame], data: bytes) -> Frame:
    """Parse a frame. Invalid bytes become an empty frame, which the stream refuses with a message."""
    try:
        return frame_type.FromString(data)
    except DecodeError:
        return frame_type()


class _Calls:
    """The methods of the gRPC service."""

    def __init__(self, services: PushServices, logins: _Logins) -> None:
        self._services = services
        self._logins = logins

    def unary(
        self, call: Callable[[Any, Caller], Awaitable[Any]], request: Any
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        action = request.DESCRIPTOR.name.removesuffix("Request")

        async def answer(message: Any, context: Any) -> Any:
            login = await self._log_in(context)
            return await call(message, self._caller(context, login, action))

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=request.FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )

    async def stream(self, _requests: Any, context: Any) -> None:
        wire: _CallWire[pb.ClientFrame, pb.ServerFrame] = _CallWire(context, pb.ClientFrame)
        await self._serve(context, "Stream", partial(serve_stream, self._services, wire))

    async def half(self, _requests: Any, context: Any) -> None:
        wire: _CallWire[pb.HalfClientFrame, pb.HalfServerFrame] = _CallWire(
            context, pb.HalfClientFrame
        )
        await self._serve(context, "Half", partial(serve_half_stream, self._services, wire))

    async def _serve(
        self, context: Any, action: str, serve: Callable[[Caller, Login], Awaitable[None]]
    ) -> None:
        login = await self._log_in(context)
        try:
            await serve(self._caller(context, login, action), login)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("a push stream of %s failed", context.peer())
            raise

    async def _log_in(self, context: Any) -> Login:
        try:
            return await self._logins.of(context)
        except (NoRuleMatches, NotAuthenticated) as reason:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(reason))
            raise

    def _caller(self, context: Any, login: Login, action: str) -> Caller:
        return self._services.caller_of(login.principal, host_of(context.peer()), action)

    async def leaders(self, request: pb.LeadersRequest, caller: Caller) -> pb.LeadersResponse:
        for name in request.topics:
            if not caller.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                return pb.LeadersResponse(code=pb.NOT_AUTHORIZED, message=_NOT_PERMITTED)
        image = self._services.image
        places = []
        for name in request.topics:
            topic = image.topics.get(name)
            if topic is None:
                return pb.LeadersResponse(
                    code=pb.UNKNOWN_TOPIC, message=f"there is no topic {name!r}"
                )
            places += [TopicPartition(name, index) for index in range(len(topic.partitions))]
        return pb.LeadersResponse(leaders=leaders(image, places, self._services.push_addresses()))

    async def explain_retention(
        self, request: pb.ExplainRetentionRequest, caller: Caller
    ) -> pb.ExplainRetentionResponse:
        topic = request.topic
        if not caller.may(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            return pb.ExplainRetentionResponse(code=pb.NOT_AUTHORIZED, message=_NOT_PERMITTED)
        if topic not in self._services.image.topics:
            return pb.ExplainRetentionResponse(
                code=pb.UNKNOWN_TOPIC, message=f"there is no topic {topic!r}"
            )
        return self._services.explain_retention(topic)

    async def list_sessions(
        self, request: pb.ListSessionsRequest, caller: Caller
    ) -> pb.ListSessionsResponse:
        response = pb.ListSessionsResponse()
        for session, stream in await self._services.sessions.listed(request.group):
            if not _sees(caller, session.group, *session.topic.split(",")):
                continue
            traffic = stream.traffic if stream is not None else None
            response.sessions.append(
                pb.Session(
                    name=f"{session.group}/{session.consumer}",
                    group=session.group,
                    consumer=session.consumer,
                    topics=session.topic.split(","),
                    mode=MODE_CODES[session.mode],
                    state=session.state,
                    reason=session.reason,
                    attempt=session.retries,
                    since_ms=session.state_since_ms,
                    connected=stream is not None,
                    in_flight=traffic.in_flight if traffic else 0,
                    delivered=traffic.delivered if traffic else 0,
                    redelivered=traffic.redelivered if traffic else 0,
                    broker_id=self._services.broker_id,
                )
            )
        return response

    async def resume_session(
        self, request: pb.ResumeSessionRequest, caller: Caller
    ) -> pb.ResumeSessionResponse:
        group, _, consumer = request.name.rpartition("/")
        if not caller.may(Operation.READ, ResourceType.GROUP, group):
            return pb.ResumeSessionResponse(code=pb.NOT_AUTHORIZED, message=_NOT_PERMITTED)
        try:
            found = await self._services.sessions.resume(group, consumer)
        except BrokerError as error:
            return pb.ResumeSessionResponse(code=code_of(error), message=str(error))
        if found is None:
            return pb.ResumeSessionResponse(
                code=pb.INVALID, message=f"there is no session {request.name!r} here"
            )
        return pb.ResumeSessionResponse()

    async def list_groups(
        self, request: pb.ListGroupsRequest, caller: Caller
    ) -> pb.ListGroupsResponse:
        deliveries, name = self._services.deliveries, request.group
        response = pb.ListGroupsResponse()
        for claim in await deliveries.local_claims():
            if name in ("", claim.group) and _sees(caller, claim.group, claim.topic):
                mode = MODE_CODES[claim.mode]
                response.claims.append(
                    pb.GroupClaim(topic=claim.topic, group=claim.group, mode=mode)
                )
        for each in await deliveries.positions(name):
            if not _sees(caller, each.group, each.topic):
                continue
            response.partitions.append(
                pb.GroupPartition(
                    group=each.group,
                    topic=each.topic,
                    partition=each.partition,
                    start_offset=each.start_offset,
                    done_count=each.done_count,
                    end_offset=-1 if each.end_offset is None else each.end_offset,
                    in_flight=each.in_flight,
                    open=each.is_open,
                    consumers=each.consumers,
                )
            )
        for stream in self._services.sessions.streams:
            session = stream.session
            topics = session.topic.split(",")
            if name in ("", session.group) and _sees(caller, session.group, *topics):
                response.consumers.append(
                    pb.GroupConsumer(
                        group=session.group,
                        consumer=session.consumer,
                        client_id=session.client,
                        mode=MODE_CODES[session.mode],
                        topics=topics,
                    )
                )
        return response

    async def release(self, request: pb.ReleaseRequest, caller: Caller) -> pb.ReleaseResponse:
        deliveries, topic, group = self._services.deliveries, request.topic, request.group
        try:
            is_permitted = caller.may(Operation.READ, ResourceType.TOPIC, topic)
            if is_permitted and not group:
                claim = await deliveries.claim_of(topic)
                group = "" if claim is None else claim.group
            # Without a group there is nothing to release.
            if not is_permitted or (
                group and not caller.may(Operation.DELETE, ResourceType.GROUP, group)
            ):
                return pb.ReleaseResponse(code=pb.NOT_AUTHORIZED, message=_NOT_PERMITTED)
            rest = await deliveries.unclaim(topic, group)
        except BrokerError as error:
            return pb.ReleaseResponse(code=code_of(error), message=str(error))
        if rest is not None:
            return pb.ReleaseResponse(
                code=pb.GROUP_CONFLICT,
                message=f"topic {topic!r} is read point-to-point by group {rest.group!r}",
            )
        return pb.ReleaseResponse()


def _sees(caller: Caller, group: str, *topics: str) -> bool:
    """Whether the caller may know of the group and of what it reads."""
    return caller.sees(Operation.DESCRIBE, ResourceType.GROUP, group) and all(
        caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics
    )
