"""The moves of one shard: takes staged messages, and moves them into their topics, one transaction at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from zhumq.coordinators.mover import MoveFailed, Mover, is_refused, size_of
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.records.batch import Record

logger = logging.getLogger(__name__)

LOAD_SECONDS: Final = 0.05  # between two questions to a shard that is being loaded
MOVED_BYTES_MAX: Final = 4 << 20  # in one transaction, unless one message is larger
# A partition that could not be written to is left alone for this time, then twice as long, and so on: an attempt holds up
# the messages for other partitions.
AVOID_SECONDS: Final = 0.5
AVOID_SECONDS_MAX: Final = 15.0
# A partition that is not in the metadata image for so long was deleted. Before that the image may be old.
MISSING_SECONDS_MAX: Final = 3.0


class StagedMessage(Protocol):
    """A message on its way."""

    @property
    def target(self) -> TopicPartition: ...


M = TypeVar("M", bound=StagedMessage)


@dataclass(frozen=True, slots=True)
class Taken(Generic[M]):
    """Messages that are to be moved now, each with its record; None where the log has no record."""

    messages: Sequence[tuple[M, Record | None]] = ()
    code: ErrorCode = ErrorCode.NONE
    # A transaction of an earlier leader may be open.
    is_marked: bool = False


class StagedMessages(Protocol[M]):
    """The shard that the messages are staged in."""

    @property
    def name(self) -> str:
        """What a log line calls it."""

    async def take(
        self, avoided: Mapping[TopicPartition, float], seconds: float | None
    ) -> Taken[M] | None:
        """The next messages to move, at most as many as one transaction takes; None after so many seconds without one.
        `avoided` are partitions that are left alone, until these times of the event loop."""

    async def mark_moved(
        self,
        messages: Sequence[M],
        producer: Producer,
        verify: Callable[[], Awaitable[ErrorCode]],
    ) -> ErrorCode:
        """They are in their topics once the transaction is committed."""

    async def mark_failed(self, message: M, reason: str, *, is_refused: bool) -> None:
        """Its topic refuses it; or it has lost its topic or its record."""


def first_bytes(
    messages: Iterable[tuple[M, Record | None]], bytes_max: int = MOVED_BYTES_MAX
) -> list[tuple[M, Record | None]]:
    """As many of them as one transaction takes, at least one."""
    found: list[tuple[M, Record | None]] = []
    size = 0
    for message, record in messages:
        size += 0 if record is None else size_of(record)
        if found and size > bytes_max:
            break
        found.append((message, record))
    return found


class ShardMoves(Generic[M]):
    """Moves the messages of one shard until it is cancelled."""

    def __init__(
        self,
        staged: StagedMessages[M],
        mover: Mover,
        exists: Callable[[M], bool],
        on_moved: Callable[[Sequence[M]], None],
    ) -> None:
        self._staged = staged
        self._mover = mover
        self._exists = exists  # whether the message's partition does
        self._on_moved = on_moved
        # Until when a partition is left alone, for how long the next time, and since when it has not been there.
        self._avoided: dict[TopicPartition, float] = {}
        self._delays: dict[TopicPartition, float] = {}
        self._missing_since: dict[TopicPartition, float] = {}

    async def run(self) -> None:
        while True:
            try:
                await self._run_once()
            except BrokerError as reason:  # The log cannot be read now.
                logger.warning("%s wait: %s", self._staged.name, reason)
                await asyncio.sleep(AVOID_SECONDS)
            except Exception:
                logger.exception("%s are not moved", self._staged.name)
                await asyncio.sleep(AVOID_SECONDS)

    async def _run_once(self) -> None:
        if self._mover.is_unsettled:
            # Messages of that transaction may have to be moved again, before those that come behind them.
            await self._mover.begin()
        now = asyncio.get_running_loop().time()
        self._avoided = {each: until for each, until in self._avoided.items() if until > now}
        seconds = min(self._avoided.values()) - now if self._avoided else None
        taken = await self._staged.take(self._avoided, seconds)
        if taken is None:
            return
        if taken.code is not ErrorCode.NONE:  # The shard is being loaded.
            await asyncio.sleep(LOAD_SECONDS)
        if taken.is_marked:
            # Ends what an earlier leader has begun, so that its messages are moved or handed out again.
            await self._mover.begin()
        if taken.messages:
            await self._move(taken.messages)

    async def _move(self, messages: Sequence[tuple[M, Record | None]]) -> None:
        by_target: dict[TopicPartition, list[tuple[M, Record]]] = {}
        for message, record in messages:
            if record is None:
                reason = "its record in the log is gone, or cannot be read"
                await self._staged.mark_failed(message, reason, is_refused=False)
            elif await self._is_there(message):
                by_target.setdefault(message.target, []).append((message, record))
        if not by_target:
            return
        failed = await self._try(by_target)
        if failed is None:
            return
        if not failed.errors:
            logger.warning("%s wait: %s", self._staged.name, failed)
            await asyncio.sleep(AVOID_SECONDS)
        for target, error in failed.errors.items():
            if is_refused(error):
                await self._move_each(target, by_target[target])
            else:
                self._avoid(target, error)

    async def _move_each(
        self, target: TopicPartition, messages: Sequence[tuple[M, Record]]
    ) -> None:
        """The partition refuses one of them: only that one fails."""
        for message, record in messages:
            failed = await self._try({target: [(message, record)]})
            error = None if failed is None else failed.errors.get(target)
            if error is not None and is_refused(error):
                reason = f"{target} refuses it: {error}"
                await self._staged.mark_failed(message, reason, is_refused=True)
            elif failed is not None:
                self._avoid(target, failed)
                return

    async def _try(
        self, by_target: dict[TopicPartition, list[tuple[M, Record]]]
    ) -> MoveFailed | None:
        moved = [message for each in by_target.values() for message, _ in each]
        records = {
            target: [record for _, record in messages] for target, messages in by_target.items()
        }
        try:
            await self._mover.move(
                records,
                lambda producer, verify: self._staged.mark_moved(moved, producer, verify),
            )
        except MoveFailed as failed:
            return failed
        self._on_moved(moved)
        for target in records:
            self._delays.pop(target, None)
        return None

    async def _is_there(self, message: M) -> bool:
        target = message.target
        if self._exists(message):
            self._missing_since.pop(target, None)
            return True
        now = asyncio.get_running_loop().time()
        if now - self._missing_since.setdefault(target, now) < MISSING_SECONDS_MAX:
            self._avoided[target] = now + AVOID_SECONDS
        else:
            reason = f"there is no partition {target} any more"
            await self._staged.mark_failed(message, reason, is_refused=False)
        return False

    def _avoid(self, target: TopicPartition, reason: Exception) -> None:
        logger.info("%s for %s wait: %s", self._staged.name, target, reason)
        delay = self._delays.get(target, AVOID_SECONDS)
        self._delays[target] = min(delay * 2, AVOID_SECONDS_MAX)
        self._avoided[target] = asyncio.get_running_loop().time() + delay
