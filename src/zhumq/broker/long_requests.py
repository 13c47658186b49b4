"""Requests with long lists: decoded and encoded in a thread, handled piece by piece.

All clients share the event loop: a list of 100,000 names handled at once would block it for too long.
"""

import asyncio
import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from zhumq.protocol.api import (
    ApiKey,
    Part,
    RequestHeader,
    decode_request,
)
from zhumq.protocol.messages.metadata import MetadataRequest
from zhumq.protocol.schema import Message

# A smaller request costs less than passing it to a thread and back.
LONG_FRAME_BYTES_MIN: Final = 32 * 1024
PIECE_ELEMENTS: Final = 200  # handled at a time: some milliseconds
# The list of the request, and the list of the response that answers it element by element.
_LISTS: Final = {
    ApiKey.METADATA: ("topics", "topics"),
    ApiKey.FIND_COORDINATOR: ("coordinator_keys", "coordinators"),
    ApiKey.OFFSET_FETCH: ("groups", "groups"),
    ApiKey.DESCRIBE_GROUPS: ("groups", "groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("group_ids", "groups"),
    ApiKey.SHARE_GROUP_DESCRIBE: ("group_ids", "groups"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ("groups", "groups"),
    ApiKey.DESCRIBE_CONFIGS: ("resources", "results"),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transactional_ids", "transaction_states"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("transactions", "results_by_transaction"),
    ApiKey.WRITE_TXN_MARKERS: ("markers", "markers"),
}
_KEYS: Final = frozenset(int(key).to_bytes(2, "big") for key in _LISTS)

# Returns the response to a request, or an awaitable of it.
Handle = Callable[[RequestHeader, Any], Any]
Encode = Callable[[Message], list[Part]]


def is_long(frame: bytes) -> bool:
    return len(frame) >= LONG_FRAME_BYTES_MIN and frame[:2] in _KEYS


class LongRequests:
    """A thread beside the event loop; more threads would only compete with the loop for the GIL."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="long-requests")

    async def answer(self, frame: bytes, handle: Handle, encode: Encode) -> list[Part]:
        """The encoded response. Raises what decoding does, and what `handle` does."""
        loop = asyncio.get_running_loop()
        request = await loop.run_in_executor(self._thread, decode_request, frame)
        response: Message | None = None
        for piece in _pieces(request.header.api_key, request.body):
            answered = handle(request.header, piece)
            if not isinstance(answered, Message):
                answered = await answered
            if response is None:
                response = answered
            else:
                name = _LISTS[request.header.api_key][1]
                getattr(response, name).extend(getattr(answered, name))
            await asyncio.sleep(0)  # other connections are served
        assert response is not None
        return await loop.run_in_executor(self._thread, encode, response)


def _pieces(key: ApiKey, body: Any) -> Iterator[Any]:
    """The request itself, or several with a part of its list each."""
    name = _LISTS[key][0]
    elements = getattr(body, name)
    if elements is None or len(elements) <= PIECE_ELEMENTS:
        yield body
        return
    if isinstance(body, MetadataRequest):
        if body.allow_auto_topic_creation:
            yield body  # the handler bounds how many topics one request creates
            return
        # A topic named twice is described once.
        elements = list({(each.name, each.topic_id): each for each in elements}.values())
    for start in range(0, len(elements), PIECE_ELEMENTS):
        piece = copy.copy(body)
        setattr(piece, name, elements[start : start + PIECE_ELEMENTS])
        yield piece
