"""Parses the text of a filter into its syntax tree: a list of tags, or a condition in SQL."""

import re
from collections.abc import Callable
from typing import Final

from zhumq.filters.invalid import FilterInvalid
from zhumq.filters.like import PatternTooComplex, has_single_wildcard, like
from zhumq.filters.syntax import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Condition,
    Constant,
    Field,
    FieldKind,
    FieldValue,
    HasTag,
    InList,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Negative,
    Not,
    Operand,
    Or,
    Truth,
)
from zhumq.filters.tokens import KEYWORDS, Token, TokenKind, tokens
from zhumq.filters.values import number_of

CHARACTERS_MAX: Final = 8_192
TERMS_MAX: Final = 500  # values, names and tags
DEPTH_MAX: Final = 40  # of parentheses, NOT and signs in each other
TABLES_MAX: Final = 20  # patterns of LIKE that cost tables

EVERYTHING: Final = "*"
TAG_SEPARATOR: Final = "||"
_TAGS_PREFIX: Final = re.compile(r"tags\s*:", re.IGNORECASE)
_TAG_LIST: Final = re.compile(r"[\w-]+(?:\s*\|\|\s*[\w-]+)*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_COMPARISONS: Final = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_FIELDS: Final = {
    "key": FieldKind.KEY,
    "topic": FieldKind.TOPIC,
    "partition": FieldKind.PARTITION,
    "offset": FieldKind.OFFSET,
    "timestamp": FieldKind.TIMESTAMP,
    "tags": FieldKind.TAGS,
}
_Part = Callable[[], Condition | Operand]
_OPERANDS: Final = (Literal, FieldValue, Negative, Arithmetic)
_TAGS_RULE: Final = "tags are compared with =, <>, IN and IS NULL only"


def parse(text: str) -> Condition | None:
    """The condition of a filter; None if every message passes it. Raises FilterInvalid."""
    if len(text) > CHARACTERS_MAX:
        raise FilterInvalid(
            f"a filter has at most {CHARACTERS_MAX} characters, and this one {len(text)}",
            text,
            CHARACTERS_MAX,
        )
    surrogate = _SURROGATE.search(text)
    if surrogate is not None:
        raise FilterInvalid("this is half a character", text, surrogate.start())
    stripped = text.strip()
    prefix = _TAGS_PREFIX.match(stripped)
    if prefix is not None:
        return _tag_list(text, text.index(stripped) + prefix.end())
    if stripped in ("", EVERYTHING):
        return None
    if _TAG_LIST.fullmatch(stripped) and stripped.upper() not in KEYWORDS:
        return _tag_list(text, 0)
    return _Parser(text).parse()


def _tag_list(text: str, begin: int) -> Condition | None:
    """The tags between `||`, from a position on."""
    if text[begin:].strip() == EVERYTHING:
        return None
    tags: list[str] = []
    position = begin
    for part in text[begin:].split(TAG_SEPARATOR):
        tag = part.strip()
        if not tag or "," in tag or "|" in tag or tag == EVERYTHING:
            problem = "a tag is expected here" if not tag else f"{tag!r} is not a tag"
            raise FilterInvalid(problem, text, position + len(part) - len(part.lstrip()))
        if len(tags) >= TERMS_MAX:
            raise FilterInvalid(f"a filter has at most {TERMS_MAX} tags", text, position)
        tags.append(tag)
        position += len(part) + len(TAG_SEPARATOR)
    return HasTag(frozenset(tags))


class _Parser:
    """Recursive descent over the tokens of one condition; the depth of the recursion is bounded."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._index = 0
        self._terms = 0
        self._tables = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._condition()
        token = self._next
        if token.kind is not TokenKind.END:
            raise self._error(f"AND, OR or the end is expected here, not {_shown(token)}", token)
        return condition

    # Tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._index]

    def _take(self) -> Token:
        token = self._next
        if token.kind is not TokenKind.END:
            self._index += 1
        return token

    def _takes(self, *texts: str) -> bool:
        """Take the next token if it is this keyword or symbol; of several, if they follow each other."""
        following = self._tokens[self._index : self._index + len(texts)]
        if len(following) == len(texts) and all(
            token.kind in (TokenKind.KEYWORD, TokenKind.SYMBOL) and token.text == text
            for token, text in zip(following, texts, strict=True)
        ):
            self._index += len(texts)
            return True
        return False

    def _expect(self, text: str, why: str) -> None:
        if not self._takes(text):
            raise self._error(f"{text} is expected {why}, not {_shown(self._next)}", self._next)

    def _error(self, problem: str, token: Token) -> FilterInvalid:
        return FilterInvalid(problem, self._text, token.position)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(f"more than {DEPTH_MAX} levels are nested here", self._next)

    def _count_term(self, token: Token) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise self._error(f"a filter has at most {TERMS_MAX} values and names", token)

    # Conditions, from the weakest operator to the strongest

    def _condition(self) -> Condition:
        begin = self._next
        return self._as_condition(self._any_of(), begin)

    def _any_of(self) -> Condition | Operand:
        begin = self._next
        first = self._all_of()
        if not self._is_next("OR"):
            return first
        conditions = [self._as_condition(first, begin)]
        while self._takes("OR"):
            begin = self._next
            conditions.append(self._as_condition(self._all_of(), begin))
        return Or(tuple(conditions))

    def _all_of(self) -> Condition | Operand:
        begin = self._next
        first = self._negation()
        if not self._is_next("AND"):
            return first
        conditions = [self._as_condition(first, begin)]
        while self._takes("AND"):
            begin = self._next
            conditions.append(self._as_condition(self._negation(), begin))
        return And(tuple(conditions))

    def _is_next(self, keyword: str) -> bool:
        return self._next.kind is TokenKind.KEYWORD and self._next.text == keyword

    def _negation(self) -> Condition | Operand:
        if not self._takes("NOT"):
            return self._predicate()
        self._deeper()
        begin = self._next
        negated = Not(self._as_condition(self._negation(), begin))
        self._depth -= 1
        return negated

    def _predicate(self) -> Condition | Operand:
        begin = self._next
        left = self._operand()
        token = self._next
        if token.kind is TokenKind.SYMBOL and token.text in _COMPARISONS:
            self._take()
            return self._comparison(left, begin, "<>" if token.text == "!=" else token.text)
        if self._takes("IS", "NOT", "NULL"):
            return Not(IsNull(self._as_operand(left, begin)))
        if self._takes("IS", "NULL"):
            return IsNull(self._as_operand(left, begin))
        if self._is_next("IS"):
            raise self._error("IS is followed by NULL or NOT NULL", token)
        negated = self._takes("NOT")
        if self._takes("BETWEEN"):
            found: Condition = self._between(left, begin)
        elif self._takes("IN"):
            found = self._in_list(self._as_operand(left, begin))
        elif self._takes("LIKE"):
            found = self._like(left, begin)
        elif negated:
            raise self._error(
                f"BETWEEN, IN or LIKE is expected here, not {_shown(self._next)}", self._next
            )
        else:
            return left
        return Not(found) if negated else found

    def _comparison(self, left: Condition | Operand, begin: Token, operator: str) -> Condition:
        second = self._next
        right = self._operand()
        for one, other, place in ((left, right, begin), (right, left, second)):
            if _is_tags(one):
                if operator not in ("=", "<>"):
                    raise self._error(_TAGS_RULE, place)
                if not isinstance(other, Literal) or not isinstance(other.value, str):
                    raise self._error("tags are compared with a text, such as tags = 'a'", place)
                has_tag = HasTag(frozenset({other.value}))
                return has_tag if operator == "=" else Not(has_tag)
        # TRUE and FALSE are values here.
        operands = [
            Literal(each.value) if isinstance(each, Constant) else self._as_operand(each, place)
            for each, place in ((left, begin), (right, second))
        ]
        for each, place in zip(operands, (begin, second), strict=True):
            is_boolean = isinstance(each, Literal) and isinstance(each.value, bool)
            if is_boolean and operator not in ("=", "<>"):
                raise self._error("TRUE and FALSE are compared with = and <> only", place)
        self._check_numbers(operands[0], operands[1], second)
        self._check_numbers(operands[1], operands[0], begin)
        return Comparison(operator, operands[0], operands[1])

    def _between(self, left: Condition | Operand, begin: Token) -> Condition:
        operand = self._value(left, begin)
        place = self._next
        low = self._value(self._operand(), place)
        self._check_numbers(operand, low, place)
        self._expect("AND", "between the bounds of BETWEEN")
        place = self._next
        high = self._value(self._operand(), place)
        self._check_numbers(operand, high, place)
        return Between(operand, low, high)

    def _in_list(self, operand: Operand) -> Condition:
        self._expect("(", "after IN")
        values: list[LiteralValue] = []
        while True:
            place = self._next
            value = self._operand()
            if isinstance(value, Negative) and isinstance(value.operand, Literal):
                assert isinstance(value.operand.value, int | float)
                value = Literal(-value.operand.value)
            if not isinstance(value, Literal):
                raise self._error("a list of IN has texts and numbers only", place)
            self._check_numbers(operand, value, place)
            if _is_tags(operand) and not isinstance(value.value, str):
                raise self._error("tags are compared with a text, such as tags = 'a'", place)
            values.append(value.value)
            if self._takes(")"):
                break
            self._expect(",", "or ) in a list of IN")
        if _is_tags(operand):
            return HasTag(frozenset(each for each in values if isinstance(each, str)))
        return InList(operand, tuple(values))

    def _like(self, left: Condition | Operand, begin: Token) -> Condition:
        operand = self._value(left, begin)
        pattern = self._take()
        if pattern.kind is not TokenKind.TEXT:
            raise self._error("LIKE is followed by a text, such as 'a%'", pattern)
        self._count_term(pattern)
        escape = ""
        if self._takes("ESCAPE"):
            token = self._take()
            if token.kind is not TokenKind.TEXT or len(token.text) != 1:
                raise self._error("ESCAPE is followed by one character, such as '\\'", token)
            escape = token.text
            if _ends_escaped(pattern.text, escape):
                raise self._error("the pattern ends with its escape character", pattern)
        if has_single_wildcard(pattern.text, escape):
            self._tables += 1
            if self._tables > TABLES_MAX:
                raise self._error(f"a filter has at most {TABLES_MAX} patterns with _", pattern)
        try:
            like(pattern.text, escape)
        except PatternTooComplex as reason:
            raise self._error(str(reason), pattern) from None
        return Like(operand, pattern.text, escape)

    # Operands

    def _operand(self) -> Condition | Operand:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Condition | Operand:
        return self._chain(("*", "/", "%"), self._signed)

    def _chain(self, operators: tuple[str, ...], part: _Part) -> Condition | Operand:
        begin = self._next
        first = part()
        rest: list[tuple[str, Operand]] = []
        while self._next.kind is TokenKind.SYMBOL and self._next.text in operators:
            operator = self._take().text
            place = self._next
            rest.append((operator, self._number(part(), place)))
        if not rest:
            return first
        return Arithmetic(self._number(first, begin), tuple(rest))

    def _signed(self) -> Condition | Operand:
        sign = self._next
        if sign.kind is not TokenKind.SYMBOL or sign.text not in ("+", "-"):
            return self._primary()
        self._take()
        self._deeper()
        place = self._next
        operand = self._number(self._signed(), place)
        self._depth -= 1
        return Negative(operand) if sign.text == "-" else operand

    def _primary(self) -> Condition | Operand:
        token = self._take()
        match token.kind:
            case TokenKind.SYMBOL if token.text == "(":
                self._deeper()
                inner = self._any_of()
                self._expect(")", "here")
                self._depth -= 1
                return inner
            case TokenKind.NUMBER:
                self._count_term(token)
                return Literal(self._literal_number(token))
            case TokenKind.TEXT:
                self._count_term(token)
                return Literal(token.text)
            case TokenKind.KEYWORD if token.text in ("TRUE", "FALSE"):
                self._count_term(token)
                return Constant(token.text == "TRUE")
            case TokenKind.NAME | TokenKind.QUOTED:
                self._count_term(token)
                return FieldValue(self._field(token))
            case _:
                raise self._error(
                    f"a name, a text in single quotes or a number is expected here, not"
                    f" {_shown(token)}",
                    token,
                )

    def _literal_number(self, token: Token) -> int | float:
        text = token.text
        number = number_of(text.replace(".", ".0", 1) if text.endswith(".") else text)
        if number is None:
            raise self._error("the number is too large", token)
        return number

    # Fields

    def _field(self, token: Token) -> Field:
        if token.kind is TokenKind.QUOTED:
            return Field(kind=FieldKind.HEADER, name=self._header_name(token, token.text))
        name = token.text.lower()
        if name == "value":
            path = self._path()
            if not path:
                raise self._error("value is followed by a path in its JSON: value.price", token)
            return Field(kind=FieldKind.VALUE, path=tuple(path))
        kind = _FIELDS.get(name)
        parts = self._path()
        if kind is not None:
            if parts:
                raise self._error(f"{name} has no parts; is it a header? Put it in quotes", token)
            return Field(kind=kind)
        if any(isinstance(part, int) for part in parts):
            raise self._error("only value has elements with a number", token)
        names = [str(part) for part in parts]
        if name != "headers":
            names.insert(0, token.text)
        return Field(kind=FieldKind.HEADER, name=self._header_name(token, ".".join(names)))

    def _header_name(self, token: Token, name: str) -> str:
        if not name:
            raise self._error("the name of a header is expected here", token)
        return name

    def _path(self) -> list[str | int]:
        """The parts behind a name: `.name`, `."any name"` or `[number]`."""
        parts: list[str | int] = []
        while True:
            if self._takes("."):
                token = self._tokens[self._index]
                if token.kind not in (TokenKind.NAME, TokenKind.QUOTED, TokenKind.KEYWORD):
                    raise self._error("a name is expected after the point", token)
                self._take()
                # A keyword in the spelling of the text.
                is_quoted = token.kind is TokenKind.QUOTED
                parts.append(token.text if is_quoted else self._text[token.position : token.end])
            elif self._takes("["):
                token = self._take()
                if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
                    raise self._error("the number of an element, from 0 on, is expected", token)
                parts.append(int(token.text))
                self._expect("]", "after the number of an element")
            else:
                return parts
            self._count_term(token)

    # Kinds of nodes

    def _as_condition(self, node: Condition | Operand, begin: Token) -> Condition:
        if isinstance(node, FieldValue) and node.field.kind is FieldKind.TAGS:
            raise self._error(_TAGS_RULE, begin)
        if isinstance(node, FieldValue) and not node.field.kind.is_number:
            return Truth(node.field)
        if isinstance(node, _OPERANDS):
            raise self._error("a condition is expected here, such as price > 5", begin)
        return node

    def _as_operand(self, node: Condition | Operand, begin: Token) -> Operand:
        if not isinstance(node, _OPERANDS):
            raise self._error("a value is expected here, not a condition", begin)
        return node

    def _value(self, node: Condition | Operand, begin: Token) -> Operand:
        if _is_tags(node):
            raise self._error(_TAGS_RULE, begin)
        return self._as_operand(node, begin)

    def _number(self, node: Condition | Operand, begin: Token) -> Operand:
        operand = self._value(node, begin)
        if isinstance(operand, Literal) and isinstance(operand.value, str):
            raise self._error("a number is expected here, not a text", begin)
        return operand

    def _check_numbers(self, one: Operand, other: Operand, place: Token) -> None:
        """Refuse a number compared with a text that is none: it could only be unknown."""
        is_number = isinstance(one, Negative | Arithmetic) or (
            isinstance(one, FieldValue) and one.field.kind.is_number
        )
        if (
            is_number
            and isinstance(other, Literal)
            and isinstance(other.value, str)
            and number_of(other.value) is None
        ):
            hint = ""
            if isinstance(one, FieldValue) and one.field.kind is FieldKind.TIMESTAMP:
                hint = ": timestamp is in milliseconds since 1970"
            raise self._error(f"a number is expected here{hint}", place)


def _is_tags(node: Condition | Operand) -> bool:
    return isinstance(node, FieldValue) and node.field.kind is FieldKind.TAGS


def _ends_escaped(pattern: str, escape: str) -> bool:
    """Whether the last character of a pattern is an escape character that escapes nothing."""
    trailing = len(pattern) - len(pattern.rstrip(escape))
    return trailing % 2 == 1


def _shown(token: Token) -> str:
    return token.text if token.kind is TokenKind.END else repr(token.text)
