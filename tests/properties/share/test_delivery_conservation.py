"""With any crashes, every message ends as exactly one of acknowledged, dead-lettered, pending."""

from collections import Counter

from delivery_world import DeliveryWorld
from hypothesis import given, settings
from hypothesis import strategies as st

from zhumq.share.redelivery import RedeliveryPolicy
from zhumq.share.share_partition import SharePartitionLimits

STEPS = 120


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    max_deliveries=st.sampled_from((1, 2, 4)),
    in_flight_max=st.sampled_from((5, 30)),
    backoff_ms=st.sampled_from((0, 40)),
)
def test_no_message_is_lost_doubled_or_resurrected(
    seed: int, max_deliveries: int, in_flight_max: int, backoff_ms: int
) -> None:
    world = DeliveryWorld(
        seed,
        SharePartitionLimits(
            in_flight_max=in_flight_max,
            lock_ms=100,
            redelivery=RedeliveryPolicy(max_deliveries=max_deliveries, backoff_ms=backoff_ms),
        ),
        offsets=80,
    )
    for _ in range(STEPS):
        world.step()
    world.finish()
    dead = Counter(world.dead_letters.offsets)
    assert max(dead.values(), default=1) == 1, "a dead letter was written twice"
    assert not world.confirmed & set(dead), "acknowledged and dead-lettered"
    done = world.accepted | set(dead)
    assert done == world.records, "neither acknowledged nor dead-lettered"
