"""Linux's asynchronous I/O, as far as syncs of files need it: four system calls and an eventfd."""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

IN_FLIGHT_MAX: Final = 128  # of a broker; the system has room for 65,536 in all, by default

# From linux/aio_abi.h. An iocb: data, key, flags, operation, priority, descriptor, four unused, flags, eventfd.
_IOCB: Final = struct.Struct("<QIIHhIQQqQII")
_EVENT: Final = struct.Struct("<QQqq")  # data, iocb, result, unused
_FDSYNC: Final = 3
_NOTIFY_EVENTFD: Final = 1
_UNSIGNED: Final = 0xFFFFFFFF


class SystemCalls(NamedTuple):
    """Their numbers."""

    io_setup: int
    io_destroy: int
    io_getevents: int
    io_submit: int


_GENERIC: Final = SystemCalls(io_setup=0, io_destroy=1, io_getevents=4, io_submit=2)
_CALLS: Final = {
    "x86_64": SystemCalls(io_setup=206, io_destroy=207, io_getevents=208, io_submit=209),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
}


def system_calls() -> SystemCalls | None:
    """None where there is no asynchronous I/O, or another one."""
    is_known = sys.platform == "linux" and sys.maxsize > 2**32
    return _CALLS.get(platform.machine()) if is_known else None


class KernelAio:
    """One context of asynchronous I/O. Failures are OSError."""

    def __init__(self, calls: SystemCalls) -> None:
        self._calls = calls
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._call(calls.io_setup, ctypes.c_long(IN_FLIGHT_MAX), ctypes.byref(self._context))
        # Readable when syncs have ended.
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._iocbs = ctypes.create_string_buffer(_IOCB.size * IN_FLIGHT_MAX)
        first = ctypes.addressof(self._iocbs)
        self._pointers = (ctypes.c_void_p * IN_FLIGHT_MAX)(
            *(first + _IOCB.size * place for place in range(IN_FLIGHT_MAX))
        )
        self._events = ctypes.create_string_buffer(_EVENT.size * IN_FLIGHT_MAX)

    def submit(self, first_number: int, descriptors: Sequence[int]) -> int:
        """Begin to sync these files, which get ascending numbers; returns how many of them. At least one, or
        raises the error of the first."""
        for place, descriptor in enumerate(descriptors):
            _IOCB.pack_into(
                self._iocbs, _IOCB.size * place,
                first_number + place, 0, 0, _FDSYNC, 0, descriptor & _UNSIGNED,
                0, 0, 0, 0, _NOTIFY_EVENTFD, self.eventfd,
            )  # fmt: skip
        count = ctypes.c_long(len(descriptors))
        return self._call(self._calls.io_submit, self._context, count, self._pointers)

    def ended(self) -> list[tuple[int, int]]:
        """The numbers of the syncs that have ended, each with 0 or its errno."""
        try:
            os.eventfd_read(self.eventfd)
        except BlockingIOError:
            return []
        count = self._call(
            self._calls.io_getevents,
            self._context,
            ctypes.c_long(0),
            ctypes.c_long(IN_FLIGHT_MAX),
            self._events,
            None,
        )
        events = (_EVENT.unpack_from(self._events, _EVENT.size * place) for place in range(count))
        return [(number, max(-result, 0)) for number, _, result, _ in events]

    def close(self) -> None:
        """Waits for the syncs in progress."""
        self._call(self._calls.io_destroy, self._context)
        os.close(self.eventfd)

    def _call(self, number: int, *arguments: object) -> int:
        result = int(self._syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result
