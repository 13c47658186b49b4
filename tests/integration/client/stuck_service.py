"""A service that gets a request and never replies, to be killed: python stuck_service.py BOOTSTRAP TOPIC GROUP."""

import sys
import threading

import zhumq


def handle(task: zhumq.Task) -> None:
    sys.stdout.write(f"{(task.value or b'').decode()}\n")
    sys.stdout.flush()
    threading.Event().wait()  # until it is killed


def main() -> None:
    bootstrap, topic, group = sys.argv[1:]
    zhumq.Service(topic, handle, group=group, bootstrap=bootstrap).run()


if __name__ == "__main__":
    main()
