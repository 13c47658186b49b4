"""Sends random requests, some of them broken, to a live broker."""

import random
from collections import Counter

from zhumq.protocol.api import APIS

from .messages import TOPICS, Messages, mutated_frame
from .target import Outcome, Target

FRAMES_BETWEEN_PROBES = 10
SETTINGS = {
    "num.partitions": "1",
    # Small caps, so that random requests cannot fill the disk of a test machine.
    "topic.partitions.max": "50",
    "cluster.partitions.max": "1500",
    "offsets.topic.num.partitions": "4",
    "log.segment.bytes": "1048576",
    "log.retention.bytes": "4194304",
}


def fire(target: Target, *, frames: int, seed: int, mutated_share: float) -> Counter[Outcome]:
    """Sends `frames` frames, one API after the other, and counts the outcomes. Raises Hang."""
    draw = random.Random(seed)
    messages = Messages(draw, target.prepare(TOPICS))
    keys = list(APIS)
    outcomes: Counter[Outcome] = Counter()
    sent = 0
    while sent < frames:
        with target.peer() as peer:
            outcome = Outcome.ANSWERED
            while outcome is Outcome.ANSWERED and sent < frames:
                key = keys[sent % len(keys)]
                data = messages.frame(key)
                if draw.random() < mutated_share:
                    data = mutated_frame(draw, data)
                sent += 1
                outcome = peer.outcome() if peer.send(data) else Outcome.CLOSED
                outcomes[outcome] += 1
                if sent % FRAMES_BETWEEN_PROBES == 0:
                    target.check_health(f"frame {sent} of seed {seed}: {key.name} {data.hex()}")
    target.check_health(f"after seed {seed}")
    return outcomes
