"""A process that copies a topic exactly once, for tests that kill it: BOOTSTRAP INPUT OUTPUT GROUP."""

import sys

from zhumq import Worker
from zhumq.client.outputs import Outputs
from zhumq.client.task import Task


def main() -> None:
    bootstrap, source, target, group = sys.argv[1:]

    def copy(task: Task, outputs: Outputs) -> None:
        outputs.send(target, task.value, key=task.key)
        outputs.send(target, b"again " + (task.value or b""), key=task.key)

    print("ready", flush=True)
    Worker(source, copy, group=group, bootstrap=bootstrap, processors=2, exactly_once=True).run()


if __name__ == "__main__":
    main()
