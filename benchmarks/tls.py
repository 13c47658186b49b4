"""Cases over TLS: the same server software with a TLS listener, and a client that trusts its certificate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.cases import Case, Sizes, consuming, end_to_end, producing
from benchmarks.server import Prepared, Server
from zhumq.cli.dev_certificates import make_dev_certificates


def cases(sizes: Sizes) -> list[Case]:
    return [
        Case(
            name="end to end at 1 k messages/s, TLS",
            run=end_to_end(1000, max(2, sizes.of(10))),
            main="p50_ms",
            also=("p99_ms", "p999_ms"),
        ),
        Case(
            name="produce 1 KB, TLS",
            run=producing(sizes.of(1_000_000), 1000, 1),
            main="cpu_s_per_gb",
            also=("per_second",),
        ),
        Case(
            name="consume 1 KB, TLS",
            run=consuming(sizes.of(1_000_000), 1000),
            main="cpu_s_per_gb",
            also=("per_second",),
        ),
    ]


@contextmanager
def servers(
    names: Sequence[str], folder: Path, prepare: Mapping[str, Callable[..., Prepared]]
) -> Iterator[list[Server]]:
    """The servers with one TLS listener each. Both take the PEM file with key and certificate."""
    made = make_dev_certificates(folder / "certificates", client="bench", more_hosts=(), days=1)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(made.broker),
        # Kafka checks at start that brokers would trust each other.
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(made.authority),
    }
    with ExitStack() as stack:
        running = []
        for name in names:
            directory = folder / f"{name}-tls"
            directory.mkdir(parents=True)
            prepared = prepare[name](
                directory, settings=settings, protocol="SSL", ca_file=str(made.authority)
            )
            running.append(stack.enter_context(prepared.start()))
        yield running
