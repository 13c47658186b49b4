"""A worker in a process, for tests that send it signals: sync|async|exactly-once BOOTSTRAP TOPIC GROUP."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import zhumq
import zhumq.aio


def main() -> None:
    kind, bootstrap, topic, group = sys.argv[1:]

    def begin(task: zhumq.Task) -> None:
        print("begun", task.offset, flush=True)

    def end(task: zhumq.Task) -> None:
        print("handled", task.offset, flush=True)

    # The test writes a line when handlers may go on.
    may_go_on = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), may_go_on.set()), daemon=True).start()

    def handle(task: zhumq.Task, *_outputs: zhumq.Outputs) -> None:
        begin(task)
        may_go_on.wait()
        end(task)

    async def handle_async(task: zhumq.Task) -> None:
        begin(task)
        await asyncio.to_thread(may_go_on.wait)
        end(task)

    def report_stop(is_stopping: Callable[[], bool]) -> None:
        while not is_stopping():
            time.sleep(0.001)
        print("stopping", flush=True)

    if kind == "async":
        worker = zhumq.aio.Worker(
            topic, handle_async, group=group, bootstrap=bootstrap, processors=1
        )
        report = partial(report_stop, lambda: worker.is_stopping)
        threading.Thread(target=report, daemon=True).start()
        asyncio.run(worker.run())
    else:
        blocking = zhumq.Worker(
            topic,
            handle,
            group=group,
            bootstrap=bootstrap,
            processors=1,
            exactly_once=kind == "exactly-once",
        )
        report = partial(report_stop, lambda: blocking.is_stopping)
        threading.Thread(target=report, daemon=True).start()
        blocking.run()
    print("returned", flush=True)


if __name__ == "__main__":
    main()
