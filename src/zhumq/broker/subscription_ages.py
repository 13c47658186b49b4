"""The lag of subscriptions in seconds: how old the first messages are that their groups are not done with."""

from collections.abc import Callable, Iterable
from itertools import islice

from zhumq.broker.delivery_metrics import Behind
from zhumq.broker.group_lag import PLACES_PER_SAMPLE_MAX, SAMPLE_MS, Times
from zhumq.broker.housekeeping import Chore
from zhumq.host.clock import Clock
from zhumq.model.metric import Metric, escape_label


class SubscriptionAges:
    """Looks the ages up in the logs from time to time, of the first partitions that are behind."""

    def __init__(self, behind: Callable[[], Iterable[Behind]], times: Times, clock: Clock) -> None:
        self._behind = behind
        self._times = times
        self._clock = clock
        # By group and topic, as of the last look; 0 for one that is not behind.
        self._seconds: dict[tuple[str, str], float] = {}
        self._of_groups: dict[str, float] = {}  # the largest of each

    def chore(self) -> Chore:
        return Chore(name="lag of subscriptions", interval_ms=SAMPLE_MS, work=self.sample)

    async def sample(self) -> None:
        all_of_them = list(self._behind())
        late = list(islice((each for each in all_of_them if each.messages), PLACES_PER_SAMPLE_MAX))
        found = await self._times.ask([each.place for each in late])
        now_ms = self._clock.now_ms()
        seconds = {(each.group, each.topic): 0.0 for each in all_of_them if not each.messages}
        for each in late:
            time_ms = found.get(each.place)
            if time_ms is not None:
                name = (each.group, each.topic)
                seconds[name] = max(seconds.get(name, 0.0), (now_ms - time_ms) / 1000)
        self._seconds = seconds
        of_groups: dict[str, float] = {}
        for (group, _), age in seconds.items():
            of_groups[group] = max(of_groups.get(group, 0.0), age)
        self._of_groups = of_groups

    def of_group(self, group: str) -> float | None:
        """The largest age in any topic; None: not known."""
        return self._of_groups.get(group)

    def metrics(self) -> Iterable[Metric]:
        yield Metric(
            name="zhumq_subscription_lag_seconds",
            kind="gauge",
            help="How old the first message is that a group is not done with; 0 without one. Sampled every ten seconds.",
            labels=("group", "topic"),
            samples=[
                (f'{{group="{escape_label(group)}",topic="{escape_label(topic)}"}}', age)
                for (group, topic), age in self._seconds.items()
            ],
        )
