"""The delays of requests are drawn by a seed, for requests of transactions alone."""

from chaos.request_delays import END, PRODUCE, SECONDS, RequestDelays


def test_the_same_seed_gives_the_same_delays() -> None:
    first, second, other = (RequestDelays(seed=each) for each in (1, 1, 2))
    drawn = [[each.seconds_of(PRODUCE, 9) for _ in range(2_000)] for each in (first, second, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert first.delayed == sum(each > 0 for each in drawn[0]) > 0


def test_some_requests_are_delayed_and_within_the_bounds() -> None:
    delays = RequestDelays(seed=1)
    drawn = [delay for _ in range(5_000) if (delay := delays.seconds_of(END, 5))]
    assert 20 < len(drawn) < 300
    assert all(SECONDS[0] <= each <= SECONDS[1] for each in drawn)


def test_other_requests_and_ends_of_version_1_are_never_delayed() -> None:
    delays = RequestDelays(seed=1)
    for api_key, version in ((1, 12), (3, 9), (18, 3), (END, 4)):
        assert not any(delays.seconds_of(api_key, version) for _ in range(500))
    assert delays.delayed == 0
