"""What a sink and its steps were like when its query last began: noted beside its checkpoint. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from zhumq.pipelines.document import Mark
from zhumq.pipelines.sharing import steps_for
from zhumq.pipelines.spec import Pipeline, Sink

DIGITS: Final = 16  # of a fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One sink as it was in a run."""

    # The operators that keep state, with what it is made of. None: the state is older than the notes.
    state: tuple[str, ...] | None
    steps: Mapping[str, str]  # fingerprints of the steps that its rows come through
    sink: str  # fingerprint
    code: Mapping[str, str]  # digests of the modules beside the file, by their steps

    def document(self) -> dict[str, Any]:
        state = None if self.state is None else list(self.state)
        return {
            "state": state,
            "steps": dict(self.steps),
            "sink": self.sink,
            "code": dict(self.code),
        }

    @staticmethod
    def of(document: Mapping[str, Any]) -> "Shape":
        state = document["state"]
        return Shape(
            state=None if state is None else tuple(state),
            steps=document["steps"],
            sink=document["sink"],
            code=document.get("code", {}),
        )

    def changed_steps(self, before: "Shape") -> list[str]:
        """The steps that are new, other than before, or gone."""
        names = dict.fromkeys([*self.steps, *before.steps])
        return [name for name in names if self.steps.get(name) != before.steps.get(name)]

    def changed_code(self, before: "Shape") -> list[str]:
        """The steps in Python whose module is another than before."""
        return [name for name, code in self.code.items() if before.code.get(name, code) != code]


def shape_of(
    pipeline: Pipeline, sink: Sink, state: tuple[str, ...], code: Mapping[str, str]
) -> Shape:
    """A sink of a file as it is now; `code` has the digests of its modules, by their steps."""
    steps = steps_for(pipeline, {sink.name})
    return Shape(
        state=state,
        steps={each.name: fingerprint(each) for each in steps},
        sink=fingerprint(sink),
        code={each.name: code[each.name] for each in steps if each.name in code},
    )


def fingerprint(part: object) -> str:
    """Equal for parts that differ in their lines alone. The code of Python steps is not in it."""
    text = json.dumps(_plain(part), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _plain(value: object) -> Any:
    if isinstance(value, Mark):
        return None
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return None if value is None else str(value)
