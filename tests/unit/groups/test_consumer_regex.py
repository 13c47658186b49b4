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


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "((a*)*)*b",
        "(.*)(.*)(.*)(.*)(.*)(.*)a",
        "(a|aa)+$",
        ".{1000}",
        "(x+x+)+y",
    ],
)
def test_patterns_that_hang_other_engines_are_only_tables_here(pattern: str) -> None:
    # One step a character: a backtracking engine would not come back from these.
    assert TopicRegex(pattern).matches("a" * 249 + "!") is False
    TopicRegex(pattern).matches("a" * 249)


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[", "[a", "a{1", "a{2,1}", "a{1001}", "a{99999}", "*a", "a**", "a+*", "a{2}{2}", "(?=a)",
        "(?!a)", "(?<=a)", "(?#a)", "(?P=a)", r"\1", r"\b", r"[\b]", "[b-a]", r"[a-\d]", "[[:nonsense:]]", "\\",
        "(?P<a", "(?x)a", "(" * 60 + ")" * 60, "x" * (PATTERN_LENGTH_MAX + 1), "(a{1000}){1000}", "(a|b)*a(a|b){15}",
        "{", "a{x}",
    ],
)  # fmt: skip
def test_what_is_no_expression_or_too_much_of_one_is_refused(pattern: str) -> None:
    with pytest.raises(RegexInvalid):
        TopicRegex(pattern)


def test_characters_that_no_name_has_match_nothing() -> None:
    assert not TopicRegex("ä").matches("ä")
    assert not TopicRegex("a b").matches("a b")
    assert not TopicRegex(".*").matches("a\nb")
