"""The rate of a replay, with a clock that only sleep() advances."""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from zhumq.pipelines.replay import keep_rate


class Clock:
    """Time that passes only in sleep()."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize("sizes", [[1000], [1] * 1000, [999, 1], [10_000]])
def test_rows_pass_at_their_rate(sizes: list[int]) -> None:
    clock = Clock()
    batches = [pa.record_batch({"n": range(size)}) for size in sizes]
    seen: list[tuple[float, int]] = []
    total = 0
    for part in keep_rate(iter(batches), rate=100, step=10, clock=clock):
        assert part.num_rows <= 10
        total += part.num_rows
        seen.append((clock.now - 100.0, total))
    assert total == sum(sizes)
    for elapsed, rows in seen:
        # Never more than a step ahead of the rate, and never behind it.
        assert rows - 10 <= elapsed * 100 + 1e-6 <= rows


def test_a_late_wakeup_does_not_slow_the_rest() -> None:
    class LateClock(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 0.5)

    clock = LateClock()
    batch = pa.record_batch({"n": range(1000)})
    assert (
        sum(part.num_rows for part in keep_rate(iter([batch]), rate=100, step=10, clock=clock))
        == 1000
    )
    assert clock.now - 100.0 < 10.6
