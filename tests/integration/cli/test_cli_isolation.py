"""`zhumq consume --isolation` on a topic with committed, aborted and open transactions."""

import pytest
from cli_support import Cli
from tests.integration.written_transactions import Transactions

import zhumq


@pytest.mark.thorough
@pytest.mark.parametrize("mode", [(), ("--mode", "psb"), ("--mode", "psb", "--push")])
def test_the_command_reads_to_the_end_of_its_isolation_level(
    cli: Cli, topic: str, mode: tuple[str, ...]
) -> None:
    topic = f"{topic}-{len(mode)}"
    with zhumq.Admin(cli.bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
    written = Transactions(cli.bootstrap, topic)

    def read(*options: str) -> list[bytes]:
        done = cli.must("consume", topic, "--until-end", *mode, *options)
        return done.out.splitlines()

    # The default is read_committed. Behind its last message is a marker.
    assert read() == written.visible["read_committed"]
    uncommitted = ("--isolation", "read_uncommitted")
    assert read(*uncommitted) == written.visible["read_uncommitted"]
    written.commit()
    assert read() == [*written.visible["read_committed"], b"open", b"behind"]
