"""Requests to the coordinator of a group or a transactional id, repeated while it moves to another broker."""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from confluent_kafka import KafkaError

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, Unavailable, error_of
from zhumq.admin.leaders import Leader
from zhumq.model.address import Address
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import Coordinator, FindCoordinatorRequest

Answer = TypeVar("Answer")


class CoordinatorKind(IntEnum):
    """What a coordinator is asked for by, as FindCoordinator writes it."""

    GROUP = 0
    TRANSACTION = 1


def ask_coordinator(
    connection: ClusterConnection,
    kind: CoordinatorKind,
    key: str,
    ask: Callable[[Leader], Answer],
    *,
    code_of: Callable[[Answer], int] = lambda answer: answer.error_code,  # type: ignore[attr-defined]
    may_repeat: bool = False,
) -> tuple[Leader, Answer]:
    """The coordinator of a key, and its answer, once that says that the request need not be repeated.

    `may_repeat`: the request goes out again after its answer was lost, which may be its second time.

    librdkafka does not do this for us: its admin client aborts the process when a request to a coordinator
    times out (2.16.1, an assertion on the reference count of the request).
    """
    for is_last in connection.attempts():
        coordinator = _find(connection, kind, key, is_last=is_last)
        if coordinator is None:
            continue
        try:
            answer = ask(coordinator)
        except Unavailable:
            if may_repeat and not is_last:
                continue
            raise
        if code_of(answer) not in RETRIABLE_CODES or is_last:
            return coordinator, answer
    raise AssertionError("the last attempt returns or raises")


def ask_coordinators(
    connection: ClusterConnection,
    kind: CoordinatorKind,
    keys: Iterable[str],
    ask: Callable[[Leader, list[str]], Mapping[str, Answer]],
    *,
    code_of: Callable[[Answer], int] = lambda answer: answer.error_code,  # type: ignore[attr-defined]
) -> dict[str, tuple[Leader, Answer] | AdminError]:
    """The coordinator of each key and its answer, or why there is none: one request for all keys of a coordinator.

    Requests go out again after their answers were lost, as with `may_repeat`.
    """
    found: dict[str, tuple[Leader, Answer] | AdminError] = {}
    left = list(dict.fromkeys(keys))
    if not left:
        return found
    for is_last in connection.attempts():
        coordinators, refused = _find_all(connection, kind, left, is_last=is_last)
        found |= refused
        for coordinator, its_keys in _keys_of_each(coordinators).items():
            try:
                answers = ask(coordinator, its_keys)
            except Unavailable as error:
                if is_last:
                    found |= dict.fromkeys(its_keys, error)
                continue
            for key in its_keys:
                if key not in answers:
                    found[key] = Unavailable(f"broker {coordinator.broker} left out {key!r}")
                elif code_of(answers[key]) not in RETRIABLE_CODES or is_last:
                    found[key] = coordinator, answers[key]
        left = [key for key in left if key not in found]
        if not left:
            return found
    raise AssertionError("the last attempt has an answer or an error for every key")


def check(doing: str, code: int) -> None:
    """Raise the error of an operation that a coordinator refused."""
    if code != ErrorCode.NONE:
        raise error_of(doing, KafkaError(code))


def _find(
    connection: ClusterConnection, kind: CoordinatorKind, key: str, *, is_last: bool
) -> Leader | None:
    """The broker that coordinates a key. None: there is none at the moment."""
    found, refused = _find_all(connection, kind, [key], is_last=is_last)
    if key in refused:
        raise refused[key]
    return found.get(key)


def _find_all(
    connection: ClusterConnection, kind: CoordinatorKind, keys: list[str], *, is_last: bool
) -> tuple[dict[str, Leader], dict[str, AdminError]]:
    """The brokers that coordinate keys, and why those without one never will. In neither: there is none at the moment."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
    try:
        answer: Any = connection.request(ApiKey.FIND_COORDINATOR, request)
    except Unavailable:
        if is_last:
            raise
        return {}, {}
    found: dict[str, Leader] = {}
    refused: dict[str, AdminError] = {}
    each: Coordinator
    for each in answer.coordinators:
        if each.error_code == ErrorCode.NONE:
            found[each.key] = Leader(each.node_id, str(Address(each.host, each.port)))
        elif each.error_code not in RETRIABLE_CODES or is_last:
            doing = f"find the coordinator of {each.key!r}"
            refused[each.key] = error_of(doing, KafkaError(each.error_code))
    return found, refused


def _keys_of_each(coordinators: Mapping[str, Leader]) -> dict[Leader, list[str]]:
    grouped: dict[Leader, list[str]] = {}
    for key, coordinator in coordinators.items():
        grouped.setdefault(coordinator, []).append(key)
    return grouped
