"""Errors of the commands of pipelines: one line, and an exit code."""

import sys
from typing import Final

from zhumq.model.errors import ZhumqError

EXIT_FAILED: Final = 1
EXIT_SPEC_INVALID: Final = 2


def print_error(error: ZhumqError, code: int) -> int:
    """Print the error as one line to stderr, and return the code."""
    sys.stderr.write(f"zhumq: {' '.join(str(error).split())}\n")
    return code
