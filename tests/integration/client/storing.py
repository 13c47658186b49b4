"""Stores blobs until it is killed, and prints the name of each that is stored: python storing.py FOLDER."""

import itertools
import sys

import zhumq

BLOB = b"0123456789abcdef" * 100_000


def main() -> None:
    store = zhumq.FileStore(sys.argv[1])
    for number in itertools.count():
        name = f"{number:032x}"
        store.put(name, BLOB)
        sys.stdout.write(name + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
