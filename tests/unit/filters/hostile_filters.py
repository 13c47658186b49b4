"""Filters that try to crash, to hang or to fill the memory: more than 300 of them."""

from collections.abc import Iterator


def hostile_filters() -> Iterator[str]:
    yield from _nested()
    yield from _many_terms()
    yield from _literals()
    yield from _patterns()
    yield from _broken_off()
    yield from _unusual_characters()
    yield from _attempts_at_code()


def _nested() -> Iterator[str]:
    for depth in (10, 39, 40, 41, 100, 1_000, 4_000):
        yield "(" * depth + "a = 1" + ")" * depth
        yield "(" * depth
        yield ")" * depth
        yield "NOT " * depth + "a = 1"
        yield "a = " + "-" * depth + "1"
        yield "a = " + "+-" * depth + "b"
        yield "a = " + "(1 + " * depth + "1" + ")" * depth
        yield "a IN (" * depth + "1" + ")" * depth
        yield "value" + ".a" * depth + " = 1"
        yield "value" + "[0]" * depth + " = 1"
        yield "((a = 1) AND " * depth + "b = 2" + ")" * depth


def _many_terms() -> Iterator[str]:
    for count in (100, 499, 500, 501, 10_000):
        yield " OR ".join(["a = 1"] * count)
        yield " AND ".join(["a=1"] * count)
        yield "a IN (" + ",".join(["1"] * count) + ")"
        yield "a IN (" + ",".join(f"'{each}'" for each in range(count)) + ")"
        yield "||".join(["t"] * count)
        yield "tags: " + " || ".join(f"t{each}" for each in range(count))
        yield "a = " + "+".join(["1"] * count)
        yield "a = " + "*".join(["9"] * count)
        yield "a = " + "/".join(["b"] * count)
        yield " OR ".join(f"h{each} LIKE '%_{each}'" for each in range(count))
        yield "a = 1 " * count


def _literals() -> Iterator[str]:
    for count in (39, 40, 41, 400, 5_000, 8_000, 100_000):
        yield "a = " + "9" * count
        yield "a = 0." + "1" * count
        yield "a = 1e" + "9" * count
        yield "a = '" + "x" * count + "'"
        yield "a = '" + "''" * count + "'"
        yield "a = '" + "'" * count
        yield '"' + "n" * count + '" = 1'
        yield "n" * count + " = 1"
        yield "a = '" + "x" * count
        yield f"value[{'9' * count}] = 1"
    for number in ("1e308", "1e309", "-1e400", "1e-400", "0x10", "1_000", "\uff11\uff12", "1.2.3", "1..2", ".", "..", "1e", "1e+", "00012", "NaN", "Infinity", "5L", "1.", ".5", "-.5e-3"):  # fmt: skip
        yield f"a = {number}"
        yield f"a BETWEEN {number} AND {number}"
    yield "9" * 40 + " * " + " * ".join(["9" * 40] * 190) + " = a"
    yield "a / 0 = 1"
    yield "a % 0 = 0"
    yield "1e308 * 10 = a"
    yield "1e308 - 1e308 * 10 = a"


def _patterns() -> Iterator[str]:
    for count in (5, 50, 199, 200, 201, 2_000):
        yield f"key LIKE '{'%a' * count}'"
        yield f"key LIKE '{'%a' * count}%b'"
        yield f"key LIKE '{'_' * count}'"
        yield f"key LIKE '{'%_' * count}x'"
        yield f"key LIKE '{'_%' * count}'"
        yield f"key LIKE '{'%' * count}'"
        yield f"key LIKE '{'!%' * count}' ESCAPE '!'"
    for pattern in (
        "(a+)+$",
        ".*",
        "[a-z]{1000000}",
        "\\",
        "\\d+",
        "(?=x)",
        "^$",
        "a|b",
        "\x00",
        "\n",
    ):
        yield f"key LIKE '{pattern}'"
        yield f"key LIKE '{pattern}_'"
    yield from (
        "key LIKE", "key LIKE a", "key LIKE 5", "key LIKE 'a' ESCAPE", "key LIKE 'a' ESCAPE ''",
        "key LIKE 'a' ESCAPE 'ab'", "key LIKE 'a!' ESCAPE '!'", "key LIKE '!!' ESCAPE '!'",
        "key LIKE '%%' ESCAPE '%'", "key LIKE '_' ESCAPE '_'", "NOT key LIKE", "key NOT", "key NOT LIKE",
        "key LIKE 'a' LIKE 'b'", "tags LIKE 'a%'", "offset LIKE '1%'",
    )  # fmt: skip


def _broken_off() -> Iterator[str]:
    whole = "NOT (\"h\" = 'x''y' AND value.a[0].\"b\" >= -1.5e3) OR k NOT LIKE 'a!%%' ESCAPE '!' AND n IN ('a', 2)"
    yield from (whole[:end] for end in range(len(whole)))
    yield from (
        "=", "a =", "= a", "a = = b", "a b", "a b c", "a AND", "AND", "OR", "NOT", "a OR OR b", "a IS", "a IS NOT",
        "a IS 5", "a IS NULL NULL", "NULL", "a = NULL", "a IN", "a IN (", "a IN ()", "a IN (,)", "a IN (1,)",
        "a IN (1 2)", "a IN (b)", "a IN (TRUE)", "a IN ((1))", "a BETWEEN", "a BETWEEN 1", "a BETWEEN 1 AND",
        "a BETWEEN 1 OR 2", "a BETWEEN 2 AND 1 AND", "5", "'text'", "1 + 1", "TRUE", "FALSE", "true = true",
        "TRUE > FALSE", "(a = 1) = 2", "(a = 1) + 2 = 3", "-(a = 1)", "a + 'x' = 1", "value", "value = 1",
        "value. = 1", "value[] = 1", "value[-1] = 1", "value[1.5] = 1", "value[a] = 1", "value.'a' = 1", "key.a = 1",
        "headers = 1", "headers. = 1", '"" = 1', "h[0] = 1", "offset = 'x'", "timestamp > '2026-01-01'", "offset",
        "timestamp AND a", "tags", "tags > 'a'", "tags = 5", "tags = tags", "tags + 1 = 2", "tags IN (1)",
        "tags BETWEEN 'a' AND 'b'", "NOT tags", "tags:", "tags: ||", "tags: a ||", "tags: a | b", "tags: a,b",
        "a ||", "|| a", "a || || b", "a || *", "a | b", "a && b", "a == b", "!a", "a; b", "a = 1;", "{a}", "a ? b",
    )  # fmt: skip


def _unusual_characters() -> Iterator[str]:
    for character in ("\x00", "\x1b[31m", "\u202e", "\ufeff", "\u200b", "😀", "é", "\ud800", "\udfff", "\x85", "\u2028", "\xa0", "ﬁ", "İ", "ß"):  # fmt: skip
        yield character
        yield f"a = {character}"
        yield f"a = '{character}'"
        yield f'"{character}" = 1'
        yield f"key LIKE '{character}_'"
        yield f"a{character}b = 1"
    yield " " * 8_000
    yield "\n" * 100 + "a = 1"
    yield "\t"


def _attempts_at_code() -> Iterator[str]:
    yield from (
        "__import__('os').system('true')", "a = 1; DROP TABLE t", "a = 1 -- comment", "a = 1 /* comment */",
        "a = (SELECT 1)", "a = b()", "a.__class__ = 1", "value.__class__.__mro__ = 1", "a = %(x)s", "a = {0.__class__}",
        "a = 'x' 'y'", "a = $1", "a = :b", "a = ?", "a = @b", "lambda: 1", "a := 1", "a if b else c", "exec('x')",
        "headers.__dict__ = 1", "value[0:1] = 1", "a = b'x'", "a = \"x\"", "a = `x`", "CASE WHEN a THEN b END = 1",
    )  # fmt: skip
