"""All errors: one exception tree, each class with its wire code and whether a client may retry."""

from enum import IntEnum
from typing import ClassVar


class ErrorCode(IntEnum):
    """The error codes of the Kafka protocol."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


# A client may send the same request again: a retry can succeed.
RETRIABLE_CODES = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


MESSAGE_CHARACTERS_MAX = 1_000


class ZhumqError(Exception):
    """The root of every error this project raises on purpose."""


class BrokerError(ZhumqError):
    """A request cannot be served. The class sets the error code; only dispatch turns it into a response."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE_CODES

    def __str__(self) -> str:
        # Clients get it in fields of at most 32 KiB, and it may quote what a client sent.
        return super().__str__()[:MESSAGE_CHARACTERS_MAX]


class MalformedFrame(ZhumqError):
    """The bytes are not a valid protocol frame. The broker closes their connection."""


class SettingInvalid(ZhumqError):
    """A setting that the operator gave cannot be used; the message says which and why."""


class DataDirUnusable(ZhumqError):
    """The data folder is in use, unwritable, or belongs to another broker."""


class StorageFailed(BrokerError):
    """The disk failed for a partition. Its log stays offline until a restart."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DiskFull(BrokerError):
    """No space is left and nothing was written. The same append succeeds once there is space."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class OffsetOutOfRange(BrokerError):
    """The offset is outside of what the log holds."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(BrokerError):
    """A record batch does not match its checksum or its own lengths."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartition(BrokerError):
    """No such topic or partition on this cluster."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class LeaderNotAvailable(BrokerError):
    """The partition has no leader right now."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollower(BrokerError):
    """This broker does not lead the partition; the client's route is stale."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RequestTimedOut(BrokerError):
    """The request could not be answered within the client's timeout."""

    code = ErrorCode.REQUEST_TIMED_OUT


class MessageTooLarge(BrokerError):
    """A record batch is larger than the topic allows."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class CoordinatorLoadInProgress(BrokerError):
    """The coordinator is still replaying its log."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(BrokerError):
    """There is no coordinator right now."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(BrokerError):
    """Another broker coordinates this group."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidTopic(BrokerError):
    """The topic name is not a legal one."""

    code = ErrorCode.INVALID_TOPIC


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than the topic demands."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class InvalidRequiredAcks(BrokerError):
    """acks is none of 0, 1 and -1."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class InvalidTimestamp(BrokerError):
    """A record's timestamp is too far from the broker's clock."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedVersion(BrokerError):
    """The request's version is not one this broker speaks."""

    code = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExists(BrokerError):
    """A topic of this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(BrokerError):
    """The number of partitions is not valid."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(BrokerError):
    """The replication factor is not valid, or larger than the number of brokers."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(BrokerError):
    """The given assignment names unknown or repeated brokers."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfig(BrokerError):
    """A setting has an unknown name or an impossible value."""

    code = ErrorCode.INVALID_CONFIG


class InvalidRequest(BrokerError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormat(BrokerError):
    """Only record batches of format 2 are accepted."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class PolicyViolation(BrokerError):
    """The request exceeds a configured limit of this broker."""

    code = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumber(BrokerError):
    """A producer's batch does not follow its last one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(BrokerError):
    """A newer instance of this producer has fenced it."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(BrokerError):
    """The producer's transaction state does not allow this operation."""

    code = ErrorCode.INVALID_TXN_STATE


class FetchSessionIdNotFound(BrokerError):
    """The incremental fetch session does not exist; the client starts a new one."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpoch(BrokerError):
    """The request does not have the next epoch of its incremental fetch session."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class FencedLeaderEpoch(BrokerError):
    """The client knows an older leader epoch than this broker."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(BrokerError):
    """The client knows a newer leader epoch than this broker."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnsupportedCompressionType(BrokerError):
    """The batch's compression needs a newer request version."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class InvalidRecord(BrokerError):
    """A record breaks a rule of its topic. `record_indexes` are the places of such records, if known."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, record_indexes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.record_indexes = record_indexes


class UnknownTopicId(BrokerError):
    """No topic of this id exists."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InconsistentTopicId(BrokerError):
    """The partition's topic has another id than the request names."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class GroupIdNotFound(BrokerError):
    """No such group."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroup(BrokerError):
    """The group still has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class InvalidGroupId(BrokerError):
    """The group id is not a legal one."""

    code = ErrorCode.INVALID_GROUP_ID
