"""Expressions for topic names: what they match, what is refused, and that none takes long."""

import random
import re

import pytest

from zhumq.groups.consumer_regex import PATTERN_LENGTH_MAX, RegexInvalid, TopicRegex


@pytest.mark.parametrize(
    ("pattern", "same_in_python"),
    [
        ("orders.*", None),
        ("^abc-[0-9]+$", None),
        ("(a|b)*abb", None),
        ("a{2,4}b?", None),
        ("a{2,}", None),
        ("[^a-c]x", None),
        ("[a-]+", None),
        ("[]a]+", None),
        (r"[\d.]+", None),
        ("(?i)aBc.*", None),
        ("(?i:a)b", None),
        ("a|b|", None),
        (r"a\.\w+", None),
        (r"\D\S\W?", None),
        ("(?:ab)+?", None),
        ("(?P<name>a)b", None),
        ("(?<name>a)b", "(?P<name>a)b"),
        (r"\Qa.b\E.*", r"a\.b.*"),
        (r"\Aab\z", "ab"),
        ("[[:digit:]]+", "[0-9]+"),
        ("[[:alpha:]x]", "[a-zA-Z]"),
        ("x^a", None),
        ("a$b", None),
        ("", None),
        ("(^a|b$)*", None),
        (".{3}", None),
    ],
)
def test_a_name_matches_as_in_other_engines(pattern: str, same_in_python: str | None) -> None:
    ours = TopicRegex(pattern)
    theirs = re.compile(same_in_python or pattern)
    draw = random.Random(pattern)
    for _ in range(2_000):
        name = "".join(draw.choice("abcxABC.-_019") for _ in range(draw.randrange(8)))
        assert ours.matches(name) == bool(theirs.fullmatch(name)), name


HARD = [
    "(a+)+$",
    "(a|a)*b",
    "((a*)*)*b",
    "(.*)(.*)(.*)(.*)(.*)(.*)a",
    "(a|aa)+$",
    ".{1000}",
    "(x+x+)+y",
    "(a|b)*a(a|b){15}",
    "(a|b)*a(a|b){240}",
    "(.*a.{400}|.*b.{399})*",
    "(.*){500}",
    "(.?){800}",
]


@pytest.mark.parametrize("pattern", HARD)
def test_patterns_that_hang_other_engines_are_matched_in_no_time(pattern: str) -> None:
    draw = random.Random(pattern)
    names = ["".join(draw.choice("ab") for _ in range(249)) for _ in range(1_000)]
    # A backtracking engine would not come back from one of them.
    regex = TopicRegex(pattern)
    assert {regex.matches(name) for name in names} <= {False, True}


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[", "[a", "a{2,1}", "a{1001}", "a{99999}", "*a", "a**", "a+*", "a{2}{2}", "(?=a)", "(?!a)",
        "(?<=a)", "(?#a)", "(?P=a)", r"\1", r"[\b]", "[b-a]", r"[a-\d]", "[[:nonsense:]]", "\\", "(?P<a", "(?x)a",
        r"a\Z", "x" * (PATTERN_LENGTH_MAX + 1), "(a{1000}){1000}", "(.{0,60}){60}", "((.?a?){50}){20}",
    ],
)  # fmt: skip
def test_what_is_no_expression_or_too_much_of_one_is_refused(pattern: str) -> None:
    with pytest.raises(RegexInvalid, match=r"\w"):
        TopicRegex(pattern)


def test_characters_that_no_name_has_are_matched_as_in_kafka() -> None:
    assert not TopicRegex("\u00e4").matches("a")
    assert TopicRegex("orders-\u00e4?").matches("orders-")
    assert TopicRegex("(orders|\u65e5\u672c)-[^\u00e4]").matches("orders-1")
    assert not TopicRegex("a b").matches("ab")
