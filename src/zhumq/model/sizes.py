"""Sizes as people read them."""

from typing import Final

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size_text(count: int) -> str:
    """A number of bytes in the largest unit that it reaches: `1.5 MiB`."""
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
