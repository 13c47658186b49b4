import pytest

from zhumq.cli.options import CommandFailed
from zhumq.cli.rebalance import parse_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1", 1), ("50M", 50_000_000), ("10kb", 10_000), ("2G", 2_000_000_000), ("off", None)],
)
def test_a_rate_is_read_with_its_unit(text: str, rate: int | None) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-5", "5T", "1.5M", "M", "50 M/s", "9" * 40])
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CommandFailed, match="such as 50M"):
        parse_rate(text)
