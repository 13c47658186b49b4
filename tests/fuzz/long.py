"""The long fuzz: `python -m tests.fuzz.long --frames N --seed S` against a broker of its own."""

import argparse
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.api import UnsupportedApiVersion, decode_request
from zhumq.testing.process import broker_process

from .messages import Messages, mutate
from .target import HANG_SECONDS, Hang, Target
from .volley import SETTINGS, fire

VOLLEY_FRAMES = 5_000  # one seed each, so that --frames 5000 reproduces a failure
DECODER_FRAMES_PER_FRAME = 10  # the decoder alone is fast enough for ten times as many
MEMORY_GROWTH_BYTES_MAX = 1024 * 1024 * 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.long", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="frames to send")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    arguments = parser.parse_args()
    _fuzz_decoder(arguments.frames * DECODER_FRAMES_PER_FRAME, arguments.seed)
    with (
        tempfile.TemporaryDirectory(prefix="zhumq-fuzz-") as folder,
        broker_process(Path(folder) / "data", settings=SETTINGS) as process,
    ):
        try:
            _fuzz_broker(process.bootstrap, process.pid, arguments.frames, arguments.seed)
        except Hang as hang:
            print(f"FAILED {hang}\n{process.log[-4_000:]}")
            return 1
        errors = [line for line in process.log.splitlines() if "ERROR" in line]
        if errors:
            print(f"FAILED {len(errors)} errors in the broker's log, the first: {errors[0]}")
            return 1
        if process.stop() != 0:
            print("FAILED the broker did not exit with 0")
            return 1
    print("ok")
    return 0


def _fuzz_decoder(frames: int, seed: int) -> None:
    messages = Messages(random.Random(seed))
    started = time.monotonic()
    valid = b""
    for number in range(frames):
        if number % 20 == 0:  # making a valid request costs more than breaking it
            valid = messages.frame()[4:]
        with contextlib.suppress(MalformedFrame, UnsupportedApiVersion):
            decode_request(mutate(messages.random, valid))
    print(f"decoder: {frames} frames in {time.monotonic() - started:.0f} s", flush=True)


def _fuzz_broker(bootstrap: str, pid: int, frames: int, seed: int) -> None:
    target = Target(bootstrap, pid)
    sent = 0
    while sent < frames:
        count = min(VOLLEY_FRAMES, frames - sent)
        outcomes = fire(target, frames=count, seed=seed, mutated_share=0.7)
        sent += count
        growth = target.memory_growth_bytes
        print(
            f"seed {seed}: {sent} frames, "
            + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            + f", longest wait {target.longest_wait_seconds * 1000:.0f} ms, "
            f"memory {growth / 1e6:+.0f} MB",
            flush=True,
        )
        if growth > MEMORY_GROWTH_BYTES_MAX:
            raise Hang(f"seed {seed}: the broker grew by {growth} bytes")
        if target.longest_wait_seconds > HANG_SECONDS:
            raise Hang(f"seed {seed}: a healthy client waited {target.longest_wait_seconds:.1f} s")
        seed += 1
    target.close()


if __name__ == "__main__":
    sys.exit(main())
