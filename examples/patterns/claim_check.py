"""Claim check: a large value goes to a store, and the message carries a reference to it."""

import tempfile
from pathlib import Path

from _broker import broker_address, new_topic

import zhumq
from zhumq.client.errors import BlobDamaged


def main() -> None:
    film = b"a film " * 1_000_000  # 7 MB: a broker takes messages of 1 MB
    with broker_address() as bootstrap, tempfile.TemporaryDirectory() as folder:
        films = new_topic(bootstrap, "films")
        store = zhumq.FileStore(folder)  # producers and consumers share it
        claims = zhumq.ClaimCheck(store)

        with zhumq.Producer(bootstrap) as producer:
            claims.send(producer, films, film)
            claims.send(producer, films, b"a small value")
            claims.send(producer, films, film)

        with zhumq.Consumer(films, group="viewers", bootstrap=bootstrap) as consumer:
            for number, message in enumerate(consumer, start=1):
                if number == 3:
                    damage(Path(folder))
                try:
                    value = claims.unpack(message)  # loaded here, and checked
                except BlobDamaged as error:
                    print(f"message {number}: {str(error).partition(' ')[2].partition(' ')[2]}")
                    break
                assert message.value is not None
                assert value in (film, b"a small value")
                print(f"message {number}: {len(message.value)} bytes for {len(value)}")
                claims.delete(message)  # as no other group reads it

        print("blobs left:", store.delete_older_than(0))


def damage(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"?")


if __name__ == "__main__":
    main()
