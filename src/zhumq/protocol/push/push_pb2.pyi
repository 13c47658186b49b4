from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    PTP_EXCLUSIVE: _ClassVar[Mode]
    PTP_SHARED: _ClassVar[Mode]
    PSB: _ClassVar[Mode]

class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Code]
    INVALID: _ClassVar[Code]
    UNKNOWN_TOPIC: _ClassVar[Code]
    PARTITION_OUT_OF_RANGE: _ClassVar[Code]
    OFFSET_OUT_OF_RANGE: _ClassVar[Code]
    CREDIT_INVALID: _ClassVar[Code]
    GROUP_CONFLICT: _ClassVar[Code]
    FILTER_INVALID: _ClassVar[Code]
    NOT_DELIVERED: _ClassVar[Code]
    SESSION_PARKED: _ClassVar[Code]
    UNAVAILABLE: _ClassVar[Code]
    NOT_LEADER: _ClassVar[Code]
    FENCED: _ClassVar[Code]
    INTERNAL: _ClassVar[Code]
    NOT_AUTHORIZED: _ClassVar[Code]
    LOGIN_ENDED: _ClassVar[Code]
    UNKNOWN_HALF_MESSAGE: _ClassVar[Code]
    HALF_MESSAGE_DECIDED: _ClassVar[Code]
    TOO_MANY_HALF_MESSAGES: _ClassVar[Code]

class StartKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EARLIEST: _ClassVar[StartKind]
    LATEST: _ClassVar[StartKind]
    OFFSET: _ClassVar[StartKind]
    TIME: _ClassVar[StartKind]

class AnswerKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK: _ClassVar[AnswerKind]
    NACK: _ClassVar[AnswerKind]
    REJECT: _ClassVar[AnswerKind]
    EXTEND: _ClassVar[AnswerKind]
    RELEASE: _ClassVar[AnswerKind]

class HalfDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HALF_UNKNOWN: _ClassVar[HalfDecision]
    HALF_COMMIT: _ClassVar[HalfDecision]
    HALF_ROLLBACK: _ClassVar[HalfDecision]
MODE_UNSPECIFIED: Mode
PTP_EXCLUSIVE: Mode
PTP_SHARED: Mode
PSB: Mode
OK: Code
INVALID: Code
UNKNOWN_TOPIC: Code
PARTITION_OUT_OF_RANGE: Code
OFFSET_OUT_OF_RANGE: Code
CREDIT_INVALID: Code
GROUP_CONFLICT: Code
FILTER_INVALID: Code
NOT_DELIVERED: Code
SESSION_PARKED: Code
UNAVAILABLE: Code
NOT_LEADER: Code
FENCED: Code
INTERNAL: Code
NOT_AUTHORIZED: Code
LOGIN_ENDED: Code
UNKNOWN_HALF_MESSAGE: Code
HALF_MESSAGE_DECIDED: Code
TOO_MANY_HALF_MESSAGES: Code
EARLIEST: StartKind
LATEST: StartKind
OFFSET: StartKind
TIME: StartKind
ACK: AnswerKind
NACK: AnswerKind
REJECT: AnswerKind
EXTEND: AnswerKind
RELEASE: AnswerKind
HALF_UNKNOWN: HalfDecision
HALF_COMMIT: HalfDecision
HALF_ROLLBACK: HalfDecision

class TopicChoice(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("kind", "offset", "timestamp_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    kind: StartKind
    offset: int
    timestamp_ms: int
    def __init__(self, kind: _Optional[_Union[StartKind, str]] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("topics", "mode", "group", "consumer", "start", "restart", "credits", "filter", "ack_timeout_ms", "resume", "attachment", "client_id", "instance", "max_deliveries", "read_uncommitted", "generation")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    READ_UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicChoice]
    mode: Mode
    group: str
    consumer: str
    start: Start
    restart: bool
    credits: int
    filter: str
    ack_timeout_ms: int
    resume: bool
    attachment: Attachment
    client_id: str
    instance: str
    max_deliveries: int
    read_uncommitted: bool
    generation: int
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicChoice, _Mapping]]] = ..., mode: _Optional[_Union[Mode, str]] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., restart: _Optional[bool] = ..., credits: _Optional[int] = ..., filter: _Optional[str] = ..., ack_timeout_ms: _Optional[int] = ..., resume: _Optional[bool] = ..., attachment: _Optional[_Union[Attachment, _Mapping]] = ..., client_id: _Optional[str] = ..., instance: _Optional[str] = ..., max_deliveries: _Optional[int] = ..., read_uncommitted: _Optional[bool] = ..., generation: _Optional[int] = ...) -> None: ...

class Attachment(_message.Message):
    __slots__ = ("member_id", "member_epoch")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    member_epoch: int
    def __init__(self, member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first_offset", "last_offset", "delivery_count")
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    first_offset: int
    last_offset: int
    delivery_count: int
    def __init__(self, first_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., delivery_count: _Optional[int] = ...) -> None: ...

class Messages(_message.Message):
    __slots__ = ("topic", "partition", "round", "ranges", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    round: int
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    records: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., round: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., records: _Optional[bytes] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("id", "topic", "partition", "ranges", "kind", "reason", "delay_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    id: int
    topic: str
    partition: int
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    kind: AnswerKind
    reason: str
    delay_ms: int
    def __init__(self, id: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., kind: _Optional[_Union[AnswerKind, str]] = ..., reason: _Optional[str] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Resume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Pong(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Revoked(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClientFrame(_message.Message):
    __slots__ = ("subscribe", "answer", "credit", "pause", "resume", "pong", "revoked")
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    subscribe: Subscribe
    answer: Answer
    credit: Credit
    pause: Pause
    resume: Resume
    pong: Pong
    revoked: Revoked
    def __init__(self, subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., revoked: _Optional[_Union[Revoked, _Mapping]] = ...) -> None: ...

class Leader(_message.Message):
    __slots__ = ("topic", "partition", "broker_id", "address")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    broker_id: int
    address: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., broker_id: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class Subscribed(_message.Message):
    __slots__ = ("session", "consumer", "broker_id", "ping_interval_ms", "ack_timeout_ms", "leaders", "group")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    PING_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    session: str
    consumer: str
    broker_id: int
    ping_interval_ms: int
    ack_timeout_ms: int
    leaders: _containers.RepeatedCompositeFieldContainer[Leader]
    group: str
    def __init__(self, session: _Optional[str] = ..., consumer: _Optional[str] = ..., broker_id: _Optional[int] = ..., ping_interval_ms: _Optional[int] = ..., ack_timeout_ms: _Optional[int] = ..., leaders: _Optional[_Iterable[_Union[Leader, _Mapping]]] = ..., group: _Optional[str] = ...) -> None: ...

class Assigned(_message.Message):
    __slots__ = ("partitions", "member_id", "member_epoch")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Leader]
    member_id: str
    member_epoch: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[Leader, _Mapping]]] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ...) -> None: ...

class Revoke(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[Leader]
    def __init__(self, partitions: _Optional[_Iterable[_Union[Leader, _Mapping]]] = ...) -> None: ...

class Answered(_message.Message):
    __slots__ = ("id", "code", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: int
    code: Code
    message: str
    def __init__(self, id: _Optional[int] = ..., code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Parked(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("code", "message", "retry")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    retry: bool
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ..., retry: _Optional[bool] = ...) -> None: ...

class Moved(_message.Message):
    __slots__ = ("leaders",)
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    leaders: _containers.RepeatedCompositeFieldContainer[Leader]
    def __init__(self, leaders: _Optional[_Iterable[_Union[Leader, _Mapping]]] = ...) -> None: ...

class ServerFrame(_message.Message):
    __slots__ = ("subscribed", "messages", "answered", "ping", "assigned", "revoke", "parked", "refused", "moved")
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    subscribed: Subscribed
    messages: Messages
    answered: Answered
    ping: Ping
    assigned: Assigned
    revoke: Revoke
    parked: Parked
    refused: Refused
    moved: Moved
    def __init__(self, subscribed: _Optional[_Union[Subscribed, _Mapping]] = ..., messages: _Optional[_Union[Messages, _Mapping]] = ..., answered: _Optional[_Union[Answered, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., assigned: _Optional[_Union[Assigned, _Mapping]] = ..., revoke: _Optional[_Union[Revoke, _Mapping]] = ..., parked: _Optional[_Union[Parked, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., moved: _Optional[_Union[Moved, _Mapping]] = ...) -> None: ...

class LeadersRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class LeadersResponse(_message.Message):
    __slots__ = ("leaders", "code", "message")
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    leaders: _containers.RepeatedCompositeFieldContainer[Leader]
    code: Code
    message: str
    def __init__(self, leaders: _Optional[_Iterable[_Union[Leader, _Mapping]]] = ..., code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("name", "group", "consumer", "topics", "mode", "state", "reason", "attempt", "since_ms", "connected", "in_flight", "delivered", "redelivered", "broker_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    group: str
    consumer: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    mode: Mode
    state: str
    reason: str
    attempt: int
    since_ms: int
    connected: bool
    in_flight: int
    delivered: int
    redelivered: int
    broker_id: int
    def __init__(self, name: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., mode: _Optional[_Union[Mode, str]] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., attempt: _Optional[int] = ..., since_ms: _Optional[int] = ..., connected: _Optional[bool] = ..., in_flight: _Optional[int] = ..., delivered: _Optional[int] = ..., redelivered: _Optional[int] = ..., broker_id: _Optional[int] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ...) -> None: ...

class ResumeSessionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ResumeSessionResponse(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GroupClaim(_message.Message):
    __slots__ = ("topic", "group", "mode")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    mode: Mode
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ...) -> None: ...

class GroupPartition(_message.Message):
    __slots__ = ("group", "topic", "partition", "start_offset", "done_count", "end_offset", "in_flight", "open", "consumers")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DONE_COUNT_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    partition: int
    start_offset: int
    done_count: int
    end_offset: int
    in_flight: int
    open: bool
    consumers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., done_count: _Optional[int] = ..., end_offset: _Optional[int] = ..., in_flight: _Optional[int] = ..., open: _Optional[bool] = ..., consumers: _Optional[_Iterable[str]] = ...) -> None: ...

class GroupConsumer(_message.Message):
    __slots__ = ("group", "consumer", "client_id", "mode", "topics")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group: str
    consumer: str
    client_id: str
    mode: Mode
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., consumer: _Optional[str] = ..., client_id: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("claims", "partitions", "consumers")
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[GroupClaim]
    partitions: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    consumers: _containers.RepeatedCompositeFieldContainer[GroupConsumer]
    def __init__(self, claims: _Optional[_Iterable[_Union[GroupClaim, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[GroupPartition, _Mapping]]] = ..., consumers: _Optional[_Iterable[_Union[GroupConsumer, _Mapping]]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ...) -> None: ...

class HalfRegister(_message.Message):
    __slots__ = ("group", "client_id", "answers_checks")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_CHECKS_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    answers_checks: bool
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., answers_checks: _Optional[bool] = ...) -> None: ...

class HalfHeader(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class HalfBody(_message.Message):
    __slots__ = ("key", "value", "headers")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[HalfHeader]
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[HalfHeader, _Mapping]]] = ...) -> None: ...

class HalfPrepare(_message.Message):
    __slots__ = ("id", "topic", "partition", "body")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    partition: int
    body: HalfBody
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., body: _Optional[_Union[HalfBody, _Mapping]] = ...) -> None: ...

class HalfDecide(_message.Message):
    __slots__ = ("id", "decision")
    ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    id: str
    decision: HalfDecision
    def __init__(self, id: _Optional[str] = ..., decision: _Optional[_Union[HalfDecision, str]] = ...) -> None: ...

class HalfClientFrame(_message.Message):
    __slots__ = ("number", "register", "prepare", "decide")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    DECIDE_FIELD_NUMBER: _ClassVar[int]
    number: int
    register: HalfRegister
    prepare: HalfPrepare
    decide: HalfDecide
    def __init__(self, number: _Optional[int] = ..., register: _Optional[_Union[HalfRegister, _Mapping]] = ..., prepare: _Optional[_Union[HalfPrepare, _Mapping]] = ..., decide: _Optional[_Union[HalfDecide, _Mapping]] = ...) -> None: ...

class HalfRegistered(_message.Message):
    __slots__ = ("broker_id",)
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    def __init__(self, broker_id: _Optional[int] = ...) -> None: ...

class HalfAnswered(_message.Message):
    __slots__ = ("number", "code", "message")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    number: int
    code: Code
    message: str
    def __init__(self, number: _Optional[int] = ..., code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ...) -> None: ...

class HalfCheck(_message.Message):
    __slots__ = ("id", "topic", "partition", "body", "check", "prepared_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    PREPARED_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    partition: int
    body: HalfBody
    check: int
    prepared_ms: int
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., body: _Optional[_Union[HalfBody, _Mapping]] = ..., check: _Optional[int] = ..., prepared_ms: _Optional[int] = ...) -> None: ...

class HalfServerFrame(_message.Message):
    __slots__ = ("registered", "answered", "check", "refused")
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    registered: HalfRegistered
    answered: HalfAnswered
    check: HalfCheck
    refused: Refused
    def __init__(self, registered: _Optional[_Union[HalfRegistered, _Mapping]] = ..., answered: _Optional[_Union[HalfAnswered, _Mapping]] = ..., check: _Optional[_Union[HalfCheck, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ...) -> None: ...

class HalfCoordinatorRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class HalfCoordinatorResponse(_message.Message):
    __slots__ = ("code", "message", "broker_id", "address")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    broker_id: int
    address: str
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ..., broker_id: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class ListHalfRequest(_message.Message):
    __slots__ = ("group", "states", "limit")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    group: str
    states: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    def __init__(self, group: _Optional[str] = ..., states: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ...) -> None: ...

class HalfMessage(_message.Message):
    __slots__ = ("id", "group", "topic", "partition", "state", "prepared_ms", "checks", "changed_ms", "reason", "broker_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PREPARED_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    group: str
    topic: str
    partition: int
    state: str
    prepared_ms: int
    checks: int
    changed_ms: int
    reason: str
    broker_id: int
    def __init__(self, id: _Optional[str] = ..., group: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., state: _Optional[str] = ..., prepared_ms: _Optional[int] = ..., checks: _Optional[int] = ..., changed_ms: _Optional[int] = ..., reason: _Optional[str] = ..., broker_id: _Optional[int] = ...) -> None: ...

class ListHalfResponse(_message.Message):
    __slots__ = ("messages", "has_more", "code", "message")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[HalfMessage]
    has_more: bool
    code: Code
    message: str
    def __init__(self, messages: _Optional[_Iterable[_Union[HalfMessage, _Mapping]]] = ..., has_more: _Optional[bool] = ..., code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ShowHalfRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ShowHalfResponse(_message.Message):
    __slots__ = ("code", "message", "half_message", "body")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HALF_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    half_message: HalfMessage
    body: HalfBody
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ..., half_message: _Optional[_Union[HalfMessage, _Mapping]] = ..., body: _Optional[_Union[HalfBody, _Mapping]] = ...) -> None: ...

class DecideHalfRequest(_message.Message):
    __slots__ = ("id", "decision")
    ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    id: str
    decision: HalfDecision
    def __init__(self, id: _Optional[str] = ..., decision: _Optional[_Union[HalfDecision, str]] = ...) -> None: ...

class DecideHalfResponse(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ExplainRetentionRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class RetentionSegment(_message.Message):
    __slots__ = ("partition", "base_offset", "next_offset", "size_bytes", "max_timestamp", "active", "goes_at_ms", "reason", "goes_after_bytes", "protection")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    GOES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GOES_AFTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROTECTION_FIELD_NUMBER: _ClassVar[int]
    partition: int
    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int
    active: bool
    goes_at_ms: int
    reason: str
    goes_after_bytes: int
    protection: str
    def __init__(self, partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., max_timestamp: _Optional[int] = ..., active: _Optional[bool] = ..., goes_at_ms: _Optional[int] = ..., reason: _Optional[str] = ..., goes_after_bytes: _Optional[int] = ..., protection: _Optional[str] = ...) -> None: ...

class ExplainRetentionResponse(_message.Message):
    __slots__ = ("code", "message", "broker_id", "now_ms", "segments", "segments_left_off", "day_bytes", "disk_used_bytes", "disk_total_bytes", "expired_percent", "forced_percent", "refused_percent", "refuses_writes", "delete_at", "clock_held", "beyond_help")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_LEFT_OFF_FIELD_NUMBER: _ClassVar[int]
    DAY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    FORCED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    REFUSES_WRITES_FIELD_NUMBER: _ClassVar[int]
    DELETE_AT_FIELD_NUMBER: _ClassVar[int]
    CLOCK_HELD_FIELD_NUMBER: _ClassVar[int]
    BEYOND_HELP_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    broker_id: int
    now_ms: int
    segments: _containers.RepeatedCompositeFieldContainer[RetentionSegment]
    segments_left_off: int
    day_bytes: int
    disk_used_bytes: int
    disk_total_bytes: int
    expired_percent: int
    forced_percent: int
    refused_percent: int
    refuses_writes: bool
    delete_at: str
    clock_held: bool
    beyond_help: bool
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ..., broker_id: _Optional[int] = ..., now_ms: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[RetentionSegment, _Mapping]]] = ..., segments_left_off: _Optional[int] = ..., day_bytes: _Optional[int] = ..., disk_used_bytes: _Optional[int] = ..., disk_total_bytes: _Optional[int] = ..., expired_percent: _Optional[int] = ..., forced_percent: _Optional[int] = ..., refused_percent: _Optional[int] = ..., refuses_writes: _Optional[bool] = ..., delete_at: _Optional[str] = ..., clock_held: _Optional[bool] = ..., beyond_help: _Optional[bool] = ...) -> None: ...
