"""Reads JSON of schemas that clients send: with a bound for its depth, and without NaN."""

import json
from typing import Any, Final

from zhumq.schemas.errors import InvalidSchema

DEPTH_MAX: Final = 200  # of arrays and objects in each other


def read_json(text: str) -> Any:
    """The value of a text. Raises InvalidSchema."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidSchema("the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is no JSON: {error}") from None
    if _depth_is_above(found, DEPTH_MAX):
        raise InvalidSchema(f"the JSON is nested more than {DEPTH_MAX} levels deep")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _depth_is_above(value: Any, depth_max: int) -> bool:
    """Level by level: the depth is not known to be small."""
    level = [value]
    for _ in range(depth_max):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
        level = [each for each in below if isinstance(each, dict | list)]
        if not level:
            return False
    return True
