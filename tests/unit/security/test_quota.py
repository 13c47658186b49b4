"""Rates in samples beside a simple model, Kafka's order of quotas, and bounded memory."""

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.security.credential import QuotaEntity
from zhumq.security.quota import (
    IDLE_MS_MAX,
    RATES_MAX,
    THROTTLE_MS_MAX,
    QuotaKey,
    QuotaUse,
    Rate,
    Sampling,
    find_connection_quota,
    find_quota,
)

START_MS = 1_000_000
PRODUCE, FETCH, REQUEST, CONNECTION = QuotaKey
SAMPLES = Sampling()

# Kafka's eight levels for a user `u` with a client id `c`, the most specific one first.
LEVELS: list[tuple[QuotaEntity, tuple[str, str]]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]


class ModelRate:
    """Kafka's SampledStat and Rate, written as Kafka describes them: slots that are reset and reused."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.samples: list[list[float]] = []  # begin, last, sum
        self.current = 0

    def record(self, amount: float, now: int) -> None:
        if not self.samples:
            self.samples.append([now, now, 0])
        if now - self.samples[self.current][0] >= self.sampling.size_ms:
            self.current = (self.current + 1) % (self.sampling.count + 1)
            if self.current >= len(self.samples):
                self.samples.append([now, now, 0])
            else:
                self.samples[self.current] = [now, now, 0]
        sample = self.samples[self.current]
        sample[1] = now
        sample[2] += amount

    def throttle_ms(self, quota: float, now: int) -> int:
        for sample in self.samples:
            if now - sample[1] >= self.sampling.count * self.sampling.size_ms:
                sample[:] = [now, now, 0]
        elapsed = now - min(sample[0] for sample in self.samples)
        full = elapsed // self.sampling.size_ms
        if full < self.sampling.count - 1:
            elapsed += (self.sampling.count - 1 - full) * self.sampling.size_ms
        elapsed = max(elapsed, 1)
        rate = sum(sample[2] for sample in self.samples) / (elapsed / 1_000)
        if rate <= quota:
            return 0
        return min(max(round((rate - quota) / quota * elapsed), 1), THROTTLE_MS_MAX)


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 50_000)), min_size=1, max_size=60),
    st.integers(1, 12),
    st.sampled_from([1_000, 2_000]),
    st.integers(1, 5_000),
)
def test_a_rate_is_what_kafka_measures(
    amounts: list[tuple[int, int]], count: int, size_ms: int, quota: int
) -> None:
    sampling = Sampling(count=count, size_ms=size_ms)
    rate, model = Rate(sampling), ModelRate(sampling)
    now_ms = START_MS
    for pause_ms, amount in amounts:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        model.record(amount, now_ms)
        assert rate.throttle_ms(quota, now_ms) == pytest.approx(
            model.throttle_ms(quota, now_ms), abs=1
        )


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=10))
def test_a_client_that_pauses_as_it_is_throttled_stays_near_its_quota(pattern: list[int]) -> None:
    amounts = pattern * 50
    quota = 1_000
    rate = Rate(SAMPLES)
    now_ms = START_MS
    for amount in amounts:
        rate.record(amount, now_ms)
        now_ms += rate.throttle_ms(quota, now_ms)
    # The samples before the first amount count as unused: a burst of ten seconds is granted.
    seconds = (now_ms - START_MS) / 1_000 + SAMPLES.count
    assert sum(amounts) <= quota * seconds * 1.1


def test_the_throttle_time_is_kafkas() -> None:
    rate = Rate(SAMPLES)
    rate.record(10_000, START_MS)
    assert rate.throttle_ms(1_000, START_MS) == 0, "ten samples at the quota"
    rate.record(1_000, START_MS)
    assert rate.throttle_ms(1_000, START_MS) == 1_000, "11,000 bytes need eleven seconds"
    assert rate.throttle_ms(1_000, START_MS + 400) == 600
    assert rate.throttle_ms(1_000, START_MS + 11_000) == 0
    assert rate.is_empty(START_MS + 11_000)


def test_a_tiny_quota_does_not_overflow_the_throttle_time() -> None:
    rate = Rate(SAMPLES)
    rate.record(1e15, START_MS)
    assert rate.throttle_ms(1e-3, START_MS) == THROTTLE_MS_MAX


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_quota_counts(first: int) -> None:
    quotas: dict[QuotaEntity, Mapping[str, float]] = {
        entity: {PRODUCE: 100 + level} for level, (entity, _) in enumerate(LEVELS)
    }
    for entity, _ in LEVELS[:first]:
        quotas[entity] = {FETCH: 1}  # a quota of another kind does not hide one of this kind
    assert find_quota(quotas, PRODUCE, "u", "c") == (LEVELS[first][1], 100 + first)


def test_quotas_of_others_do_not_apply() -> None:
    quotas: dict[QuotaEntity, Mapping[str, float]] = {
        (("client-id", "x"), ("user", "u")): {PRODUCE: 1},
        (("client-id", "c"), ("user", "x")): {PRODUCE: 1},
        (("user", "x"),): {PRODUCE: 1},
        (("client-id", "x"),): {PRODUCE: 1},
        (("ip", None),): {CONNECTION: 1},
    }
    assert find_quota(quotas, PRODUCE, "u", "c") is None


def test_a_client_without_an_id_has_the_quotas_of_its_user_alone() -> None:
    quotas = {entity: {PRODUCE: 100.0 + level} for level, (entity, _) in enumerate(LEVELS)}
    assert find_quota(quotas, PRODUCE, "u", "") == (("u", ""), 102)
    assert find_quota(quotas, PRODUCE, "other", "") == (("other", ""), 105)
    del quotas[(("user", None),)]
    assert find_quota(quotas, PRODUCE, "other", "") is None


def test_an_address_has_its_own_quota_or_the_default() -> None:
    quotas = {(("ip", "10.0.0.1"),): {CONNECTION: 5.0}, (("ip", None),): {CONNECTION: 2.0}}
    assert find_connection_quota(quotas, "10.0.0.1") == 5
    assert find_connection_quota(quotas, "10.0.0.2") == 2
    assert find_connection_quota({}, "10.0.0.2") is None


def test_clients_of_one_user_share_its_quota_and_others_are_unaffected() -> None:
    use = QuotaUse(SAMPLES)
    use.update({(("user", "u"),): {PRODUCE: 1_000.0}})
    assert use.record(PRODUCE, "u", "a", 10_000, START_MS) == 0
    assert use.record(PRODUCE, "u", "b", 2_000, START_MS) == 2_000
    assert use.record(PRODUCE, "v", "a", 1e9, START_MS) == 0
    assert use.record(FETCH, "u", "a", 1e9, START_MS) == 0


def test_a_changed_quota_applies_to_what_was_used_before() -> None:
    use = QuotaUse(SAMPLES)
    use.update({(("user", None),): {PRODUCE: 1_000.0}})
    assert use.record(PRODUCE, "u", "a", 10_000, START_MS) == 0
    use.update({(("user", None),): {PRODUCE: 500.0}})
    assert use.record(PRODUCE, "u", "a", 0, START_MS) == 10_000
    use.update({})
    assert use.record(PRODUCE, "u", "a", 1e9, START_MS) == 0


def test_an_answer_above_the_quota_is_not_granted_and_not_counted() -> None:
    use = QuotaUse(SAMPLES)
    use.update({(("client-id", None),): {FETCH: 1_000.0}})
    assert use.amount_max(FETCH, "u", "a") == 10_000
    assert use.amount_max(FETCH, "u", "") == float("inf")
    assert use.grant(FETCH, "u", "a", 9_000, START_MS) == (True, 0)
    assert use.grant(FETCH, "u", "a", 2_000, START_MS) == (False, 1_000)
    assert use.grant(FETCH, "u", "a", 1_000, START_MS) == (True, 0)
    assert use.grant(FETCH, "u", "b", 1_000, START_MS) == (True, 0)


def test_a_batch_above_the_quota_of_all_samples_is_granted_with_a_pause_behind_it() -> None:
    use = QuotaUse(SAMPLES)
    use.update({(("client-id", None),): {FETCH: 1_000.0}})
    is_granted, throttle_ms = use.grant(FETCH, "u", "a", 50_000, START_MS)
    assert is_granted
    assert throttle_ms == 40_000
    assert not use.grant(FETCH, "u", "a", 50_000, START_MS + 1)[0]


@pytest.mark.parametrize("key", [REQUEST, CONNECTION])
def test_time_and_connections_are_throttled_for_at_most_one_sample(key: QuotaKey) -> None:
    use = QuotaUse(SAMPLES)
    use.update({(("user", None),): {REQUEST: 1.0}, (("ip", None),): {CONNECTION: 1.0}})
    assert use.record(key, "u", "", 1e6, START_MS) == SAMPLES.size_ms


def test_thousands_of_client_ids_do_not_grow_the_memory_without_bound() -> None:
    use = QuotaUse(SAMPLES)
    use.update({(("client-id", None),): {PRODUCE: 1_000.0}})
    use.record(PRODUCE, "u", "first", 11_000, START_MS)
    for number in range(RATES_MAX + 100):
        use.record(PRODUCE, "u", str(number), 1, START_MS)
        # Used again and again, so it is not forgotten.
        assert use.record(PRODUCE, "u", "first", 0, START_MS) == 1_000
    assert len(use) == RATES_MAX
    use.record(PRODUCE, "u", "last", 1, START_MS + IDLE_MS_MAX)
    assert len(use) == 1


def test_without_quotas_nothing_is_kept() -> None:
    use = QuotaUse(SAMPLES)
    for key, number in itertools.product(QuotaKey, range(100)):
        use.record(key, "u", str(number), 1e9, START_MS)
    assert len(use) == 0
