"""Reads a YAML file field by field and keeps the line of each, so that an error can name it."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from zhumq.model.errors import ZhumqError

FILE_BYTES_MAX: Final = 1024 * 1024
VALUES_MAX: Final = 100_000  # in one field: an alias may repeat others
NESTING_MAX: Final = 50
_PARAMETER: Final = re.compile(r"\$\{([^}]*)\}")
_PARAMETER_ONLY: Final = re.compile(r"\$\{(?!env:|file:)([^}]*)\}")
_PARAMETER_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class SpecInvalid(ZhumqError):
    """An invalid pipeline file; the message names the file, the line and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The position of a value in its file."""

    file: str
    line: int
    field: str
    # A block of text (`|`) begins on the line below the one that names its field.
    text_line: int

    def wrong(self, words: str, *, text_line: int | None = None) -> SpecInvalid:
        """The error for this value, or for a line within its text, counted from 1."""
        line = self.line if text_line is None else self.text_line + text_line - 1
        name = f"{self.field}: " if self.field else ""
        return SpecInvalid(f"{self.file}:{line}: {name}{words}")


class Field:
    """One value of the file; its methods check the type and return it."""

    def __init__(
        self, node: yaml.Node, *, file: str, name: str, parameters: Mapping[str, str]
    ) -> None:
        self._node = node
        self._file = file
        self._name = name
        self._parameters = parameters

    @property
    def mark(self) -> Mark:
        line = self._node.start_mark.line + 1
        block = isinstance(self._node, yaml.ScalarNode) and self._node.style in ("|", ">")
        return Mark(
            file=self._file, line=line, field=self._name, text_line=line + 1 if block else line
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no value after the colon."""
        return self._node.tag.endswith(":null")

    @property
    def is_mapping(self) -> bool:
        """Whether the value has fields of its own."""
        return isinstance(self._node, yaml.MappingNode)

    def fail(self, words: str) -> NoReturn:
        raise self.mark.wrong(words)

    def text(self, *, keeps_references: bool = False) -> str:
        """A text with its parameters filled in; numbers and words are texts too.

        `keeps_references` leaves `${env:NAME}` and `${file:PATH}` to the one that uses the text.
        """
        if not isinstance(self._node, yaml.ScalarNode) or self.is_empty:
            self.fail("must be a text")
        pattern = _PARAMETER_ONLY if keeps_references else _PARAMETER
        return pattern.sub(self._fill_in, self._node.value)

    def name(self) -> str:
        """A text that can name a view of Spark SQL, a folder and a query."""
        text = self.text()
        if not _PARAMETER_NAME.fullmatch(text):
            self.fail(f"{text!r} is not a name: use a-z, 0-9 and _, and begin with a-z")
        return text

    def number(self, *, minimum: int = 1) -> int:
        text = self.text().replace("_", "")
        if not re.fullmatch(r"\d{1,15}", text) or int(text) < minimum:
            self.fail(f"must be a whole number, at least {minimum}, not {text!r}")
        return int(text)

    def flag(self) -> bool:
        text = self.text()
        if text not in ("true", "false"):
            self.fail(f"must be true or false, not {text!r}")
        return text == "true"

    def choice(self, *choices: str) -> str:
        text = self.text()
        if text not in choices:
            self.fail(
                f"must be one of {', '.join(choices)}, not {text!r}{did_you_mean(text, choices)}"
            )
        return text

    def value(self) -> Any:
        """The value as Python has it: a text, a number, true or false, null, a list or a dictionary.

        A date or a time stays a text.
        """
        return self._value(self._node, [VALUES_MAX], depth=0)

    def items(self) -> list["Field"]:
        """The members of a list; one text alone stands for a list of one."""
        if isinstance(self._node, yaml.SequenceNode):
            return [
                self._child(node, f"{self._name}[{index}]")
                for index, node in enumerate(self._node.value)
            ]
        if not isinstance(self._node, yaml.ScalarNode) or self.is_empty:
            self.fail("must be a list")
        return [self]

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def fields(self) -> "Fields":
        """The fields of a mapping."""
        if not isinstance(self._node, yaml.MappingNode):
            self.fail("must have fields of its own (`name: value`, one a line)")
        found: dict[str, Field] = {}
        for key, value in self._node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise SpecInvalid(f"{self._file}:{line}: {self._name}: a name must be a text")
            name = f"{self._name}.{key.value}" if self._name else key.value
            if key.value in found:
                raise SpecInvalid(f"{self._file}:{line}: {name}: is given twice")
            found[key.value] = self._child(value, name)
        return Fields(self, found)

    @property
    def parameters(self) -> Mapping[str, str]:
        return self._parameters

    def with_parameters(self, parameters: Mapping[str, str]) -> "Field":
        return Field(self._node, file=self._file, name=self._name, parameters=parameters)

    def _child(self, node: yaml.Node, name: str) -> "Field":
        return Field(node, file=self._file, name=name, parameters=self._parameters)

    def _value(self, node: yaml.Node, left: list[int], *, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > NESTING_MAX:
            self.fail(
                f"has more than {VALUES_MAX:,} values, or is nested more than {NESTING_MAX} times"
            )
        match node:
            case yaml.SequenceNode():
                return [self._value(each, left, depth=depth + 1) for each in node.value]
            case yaml.MappingNode():
                return {
                    str(self._value(key, left, depth=depth + 1)): self._value(
                        value, left, depth=depth + 1
                    )
                    for key, value in node.value
                }
        if node.tag.rpartition(":")[2] in ("null", "bool", "int", "float"):
            try:
                return yaml.constructor.SafeConstructor().construct_object(node)
            except (ValueError, yaml.YAMLError):
                self.fail(f"{node.value!r} is not a value")
        return _PARAMETER.sub(self._fill_in, node.value)

    def _fill_in(self, match: re.Match[str]) -> str:
        name = match[1]
        if name not in self._parameters:
            known = ", ".join(self._parameters) or "none"
            self.fail(f"there is no parameter {name!r}; there are: {known}")
        return self._parameters[name]


class Fields:
    """The fields of a mapping; `only` fails for an unknown one."""

    def __init__(self, whole: Field, found: dict[str, Field]) -> None:
        self.whole = whole
        self._found = found

    def __iter__(self) -> Iterator[tuple[str, Field]]:
        return iter(self._found.items())

    def __len__(self) -> int:
        return len(self._found)

    def get(self, name: str) -> Field | None:
        return self._found.get(name)

    def need(self, name: str) -> Field:
        if name not in self._found:
            self.whole.fail(f"needs the field {name!r}")
        return self._found[name]

    def one_of(self, *names: str) -> tuple[str, Field]:
        """The only field of these that is given."""
        given = [name for name in names if name in self._found]
        if not given:
            self.whole.fail(f"needs one of the fields {', '.join(names)}")
        if len(given) > 1:
            self._found[given[1]].fail(f"excludes the field {given[0]!r}: give one of them")
        return given[0], self._found[given[0]]

    def only(self, *names: str) -> None:
        for name, field in self._found.items():
            if name not in names:
                field.fail(
                    f"there is no such field{did_you_mean(name, names)};"
                    f" here there are {', '.join(names)}"
                )

    def as_texts(self, *, keeps_references: bool = False) -> dict[str, str]:
        return {
            name: field.text(keeps_references=keeps_references)
            for name, field in self._found.items()
        }


def read_document(path: Path) -> Field:
    """The top-level value of a file. Raises SpecInvalid, and OSError if it cannot be read."""
    with path.open("rb") as file:
        raw = file.read(FILE_BYTES_MAX + 1)
    if len(raw) > FILE_BYTES_MAX:
        raise SpecInvalid(f"{path}: is larger than {FILE_BYTES_MAX} bytes: is this a pipeline?")
    return parse_document(raw, str(path))


def parse_document(raw: bytes, file: str) -> Field:
    """The top-level value of a text in YAML. Raises SpecInvalid."""
    try:
        node = yaml.compose(raw, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise SpecInvalid(f"{file}:{line}: this is not YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        words = " ".join(str(error).split())
        raise SpecInvalid(f"{file}:1: this is not YAML: {words}") from None
    except RecursionError:
        raise SpecInvalid(f"{file}:1: this is nested too deeply") from None
    if node is None:
        raise SpecInvalid(f"{file}:1: the file is empty")
    return Field(node, file=file, name="", parameters={})


def did_you_mean(word: str, choices: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, choices, n=1)
    return f" (did you mean {str(near[0])!r}?)" if near else ""
