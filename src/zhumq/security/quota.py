"""Client quotas: which one applies to a client, how much it uses, and for how long it is throttled. Pure."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from zhumq.security.credential import QuotaEntity

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
THROTTLE_MS_MAX: Final = 2**31 - 1  # of the field throttle_time_ms
# As Kafka's sensors: a rate that nothing was recorded in for this long is forgotten.
IDLE_MS_MAX: Final = 3_600_000
# Clients choose their ids: beyond this many rates, the one that was used least recently is forgotten.
RATES_MAX: Final = 20_000


class QuotaKey(StrEnum):
    """The kinds of quotas, with Kafka's names."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"  # of the time of one thread
    CONNECTION = "connection_creation_rate"


Quotas = Mapping[QuotaEntity, Mapping[str, float]]
# A kind of quota, a user (or an address), and a client id; empty: all of them.
_Name = tuple[QuotaKey, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """A rate is measured over `count` samples of this length, of which the last one is incomplete."""

    count: int = 11
    size_ms: int = 1_000


class Rate:
    """The rate of recent amounts, as Kafka measures it.

    A sample sums the amounts of its time. It is forgotten when its last amount is `count` samples ago, and the
    measured time is that since the oldest sample began, but at least `count - 1` whole samples.
    """

    __slots__ = ("_samples", "_sampling", "last_ms")

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        # (begin, last amount, sum), oldest first.
        self._samples: list[tuple[int, int, float]] = []
        self.last_ms = 0

    def record(self, amount: float, now_ms: int) -> None:
        self.last_ms = now_ms
        samples = self._samples
        if samples:
            begin_ms, _, total = samples[-1]
            if now_ms - begin_ms < self._sampling.size_ms:
                samples[-1] = (begin_ms, now_ms, total + amount)
                return
        samples.append((now_ms, now_ms, amount))
        # One more: the oldest may overlap the measured time.
        del samples[: -(self._sampling.count + 1)]

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long until the rate is down to the quota if nothing more is recorded; 0: it is not above."""
        total, measured_ms = self._measure(now_ms)
        rate = total * 1_000 / measured_ms
        if rate <= quota:
            return 0
        return min(max(round((rate - quota) / quota * measured_ms), 1), THROTTLE_MS_MAX)

    def is_empty(self, now_ms: int) -> bool:
        """Whether there is no recent amount."""
        return self._measure(now_ms)[0] <= 0

    def _measure(self, now_ms: int) -> tuple[float, int]:
        count, size_ms = self._sampling.count, self._sampling.size_ms
        samples = self._samples
        while samples and now_ms - samples[0][1] >= count * size_ms:
            del samples[0]
        if not samples:
            return 0.0, max((count - 1) * size_ms, 1)
        elapsed_ms = now_ms - samples[0][0]
        missing = count - 1 - elapsed_ms // size_ms
        if missing > 0:
            elapsed_ms += missing * size_ms
        return sum(total for _, _, total in samples), max(elapsed_ms, 1)


def find_quota(
    quotas: Quotas, key: QuotaKey, user: str, client_id: str
) -> tuple[tuple[str, str], float] | None:
    """The quota of a client, and who shares it: (user, client id), where empty stands for all of them.

    Kafka's order: the most specific one counts. A client without an id has quotas of its user alone.
    """
    candidates: list[tuple[QuotaEntity, tuple[str, str]]] = []
    for named in (user, None):
        if client_id:
            candidates += [
                (((CLIENT_ID, client_id), (USER, named)), (user, client_id)),
                (((CLIENT_ID, None), (USER, named)), (user, client_id)),
            ]
        candidates.append((((USER, named),), (user, "")))
    if client_id:
        candidates += [
            (((CLIENT_ID, client_id),), ("", client_id)),
            (((CLIENT_ID, None),), ("", client_id)),
        ]
    for entity, shared_by in candidates:
        quota = quotas.get(entity, {}).get(key)
        if quota is not None:
            return shared_by, quota
    return None


def find_connection_quota(quotas: Quotas, address: str) -> float | None:
    """How many connections a second the address may open."""
    for entity in (((IP, address),), ((IP, None),)):
        quota = quotas.get(entity, {}).get(QuotaKey.CONNECTION)
        if quota is not None:
            return quota
    return None


class QuotaUse:
    """What clients and addresses have used of their quotas. Bounded by RATES_MAX and IDLE_MS_MAX."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._quotas: Quotas = {}
        # By kind, user and client id: who shares the quota, and the quota. None: there is none.
        self._found: dict[_Name, tuple[_Name, float] | None] = {}
        self._rates: OrderedDict[_Name, Rate] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._rates)

    def update(self, quotas: Quotas) -> None:
        """Other quotas apply from now on. What was used stays recorded."""
        self._quotas = quotas
        self._found.clear()

    def record(self, key: QuotaKey, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record an amount. Returns for how long the client is throttled."""
        found = self._find(key, user, client_id)
        if found is None:
            return 0
        rate = self._rate(found[0], now_ms)
        rate.record(amount, now_ms)
        return self._throttle_ms(key, rate, found[1], now_ms)

    def grant(
        self, key: QuotaKey, user: str, client_id: str, amount: float, now_ms: int
    ) -> tuple[bool, int]:
        """Record an amount unless it leads above the quota. Returns whether it did not, and for how long the
        client is throttled.

        An amount above the quota by itself is recorded if it is the only recent one: it would never be otherwise.
        """
        found = self._find(key, user, client_id)
        if found is None:
            return True, 0
        rate = self._rate(found[0], now_ms)
        is_first = rate.is_empty(now_ms)
        rate.record(amount, now_ms)
        throttle_ms = self._throttle_ms(key, rate, found[1], now_ms)
        if throttle_ms and not is_first:
            rate.record(-amount, now_ms)
            return False, throttle_ms
        return True, throttle_ms

    def amount_max(self, key: QuotaKey, user: str, client_id: str) -> float:
        """More than this at once is above the quota even if nothing else is used."""
        found = self._find(key, user, client_id)
        if found is None:
            return float("inf")
        return found[1] * max(self._sampling.count - 1, 1) * self._sampling.size_ms / 1_000

    def _throttle_ms(self, key: QuotaKey, rate: Rate, quota: float, now_ms: int) -> int:
        throttle_ms = rate.throttle_ms(quota, now_ms)
        if key in (QuotaKey.REQUEST, QuotaKey.CONNECTION):
            # As in Kafka: these are checked again soon, and a long request does not block a client for minutes.
            return min(throttle_ms, self._sampling.size_ms)
        return throttle_ms

    def _find(self, key: QuotaKey, user: str, client_id: str) -> tuple[_Name, float] | None:
        name = (key, user, client_id)
        try:
            return self._found[name]
        except KeyError:
            pass
        found: tuple[_Name, float] | None = None
        if key is QuotaKey.CONNECTION:
            quota = find_connection_quota(self._quotas, user)
            if quota is not None:
                found = name, quota
        else:
            applied = find_quota(self._quotas, key, user, client_id)
            if applied is not None:
                found = (key, *applied[0]), applied[1]
        if len(self._found) >= RATES_MAX:
            self._found.clear()
        self._found[name] = found
        return found

    def _rate(self, name: _Name, now_ms: int) -> Rate:
        rates = self._rates
        rate = rates.get(name)
        if rate is not None:
            rates.move_to_end(name)
            return rate
        while rates:
            oldest = next(iter(rates))
            if len(rates) < RATES_MAX and now_ms - rates[oldest].last_ms < IDLE_MS_MAX:
                break
            del rates[oldest]
        rate = rates[name] = Rate(self._sampling)
        return rate
