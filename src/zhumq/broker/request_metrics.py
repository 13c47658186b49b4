"""Metrics of requests: a histogram of the time until they are answered, by API."""

from collections.abc import Iterable
from itertools import accumulate

from zhumq.model.metric import Metric
from zhumq.net.request_times import BOUNDS, RequestTimes
from zhumq.protocol.api import APIS, ApiKey


def request_metrics(times: RequestTimes) -> Iterable[Metric]:
    """The requests that clients of the Kafka listeners have sent since the start."""
    samples: list[tuple[str, float]] = []
    for key, of_api in sorted(times, key=lambda each: each[0]):
        api = APIS[ApiKey(key)].request.__name__.removesuffix("Request")
        counts = list(accumulate(of_api.counts))
        samples += [
            (f'_bucket{{api="{api}",le="{bound}"}}', count)
            for bound, count in zip((*BOUNDS, "+Inf"), counts, strict=True)
        ]
        samples.append((f'_sum{{api="{api}"}}', of_api.seconds))
        samples.append((f'_count{{api="{api}"}}', counts[-1]))
    yield Metric(
        name="zhumq_request_seconds",
        kind="histogram",
        help="From serving a request to its answer. A Fetch waits here for new messages, if its client asked for that.",
        labels=("api", "le"),
        samples=samples,
    )
