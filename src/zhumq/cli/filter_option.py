"""The filter that a command is given: compiled, or refused with its place marked."""

from typing import TYPE_CHECKING

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import print_note
from zhumq.filters.invalid import FilterInvalid

if TYPE_CHECKING:
    from zhumq.client.filtering import MessageTest


def parse_filter(text: str) -> "MessageTest | None":
    """The test of a filter; None if every message passes."""
    if not text:
        return None
    # Imported here: most commands have no filter.
    from zhumq.client.filtering import message_test  # noqa: PLC0415

    try:
        return message_test(text)
    except FilterInvalid as error:
        # Errors are one line: the place is shown before.
        print_note(error.excerpt)
        raise CommandFailed(error.headline) from None
