import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.model.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("key=value", {"key": "value"}),
        ("key = value", {"key": "value"}),
        ("key: value\n", {"key": "value"}),
        ("key value", {"key": "value"}),
        ("  key=value  ", {"key": "value  "}),
        ("key", {"key": ""}),
        ("key=a=b:c", {"key": "a=b:c"}),
        ("# key=1\n! key=2\n\nkey=3\r\n", {"key": "3"}),
        ("key=1\nkey=2", {"key": "2"}),
        ("key=a\\\n   b\\\n  #c", {"key": "ab#c"}),
        ("key=a\\\\\nother=b", {"key": "a\\", "other": "b"}),
        ("key=a\\", {"key": "a"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("key=\\t\\n\\r\\f\\z\\u00fC\\u0020", {"key": "\t\n\r\fzü "}),
    ],
)
def test_a_properties_file_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["key=\\u12", "key=\\uxyzw", "key=\\u"])
def test_a_broken_escape_is_refused_without_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse_properties("password=hunter2\n" + text)


@given(st.dictionaries(st.text(), st.text()))
def test_what_a_program_writes_with_escapes_is_read_back(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(
            f"\\u{ord(each):04x}" if ord(each) < 0x10000 and not each.isalnum() else each
            for each in text
        )

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in properties.items())
    # An empty key on a line of its own is a line `=value`.
    assert parse_properties(text) == properties


@given(st.text(alphabet="ab=: \\#!\r\n\t", max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    assert all("\r" not in key and "\n" not in key for key in parse_properties(text))
