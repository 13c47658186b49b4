"""Lags of many groups, each in few numbers: asked for together."""

from collections.abc import Sequence
from dataclasses import dataclass

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError
from zhumq.admin.groups import Group, describe_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is behind."""

    group: str
    members: int
    lag: int | None  # messages of all partitions whose lag is known; None: of none
    lag_seconds: float | None  # as `describe_group` has it
    idle_partitions: int  # where messages wait, and no consumer reads


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A group without a lag, and why: the caller may not describe it, or it was deleted."""

    group: str
    reason: str
    code: str  # the name of the brokers' error, or empty


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLags:
    """The lags of groups, in the order that they were asked for."""

    lags: tuple[GroupLag, ...]
    left_out: tuple[LeftOut, ...]


def group_lags(connection: ClusterConnection, groups: Sequence[str]) -> GroupLags:
    """The lags of groups: the numbers of `describe_group`, for all of them at once."""
    lags: list[GroupLag] = []
    left_out: list[LeftOut] = []
    for name, found in describe_groups(connection, groups).items():
        if isinstance(found, AdminError):
            left_out.append(LeftOut(group=name, reason=found.failure, code=found.code))
        else:
            lags.append(lag_of(found))
    return GroupLags(lags=tuple(lags), left_out=tuple(left_out))


def lag_of(group: Group) -> GroupLag:
    """The lag of a described group."""
    known = [each.lag for each in group.offsets if each.lag is not None]
    return GroupLag(
        group=group.group,
        members=len(group.members),
        lag=sum(known) if known else None,
        lag_seconds=group.lag_seconds,
        idle_partitions=sum(
            bool(each.lag) and each.member is None and not each.consumers for each in group.offsets
        ),
    )
