"""Asks zhumq and Apache Kafka the same of transactions and prints where their answers differ: `python -m conformance.transaction_errors`."""

import argparse
import json
import re
import sys
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks.kafka_peer import prepare_kafka
from benchmarks.server import BUILD
from benchmarks.zhumq_server import prepare_zhumq

from conformance.kio_client import KioClient
from conformance.transaction_player import Player
from conformance.transaction_scenarios import SCENARIOS

KINDS = {"kafka": prepare_kafka, "zhumq": prepare_zhumq}
SETTINGS = {
    # A transaction whose time is up is aborted soon.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
RESULTS = BUILD / "transaction-errors"
Answers = dict[str, list[tuple[str, str]]]
# Where zhumq answers otherwise on purpose: beginnings of requests, with the reason.
ON_PURPOSE = {
    "versions of InitProducerId": "version 6 is two-phase commit (KIP-939), which Kafka 4.3 does not serve",
    "supported transaction.version": "Kafka leaves out features whose lowest version is 0",
    "InitProducerId no transactional id, with id and epoch": "an idempotent producer keeps its id and gets the next epoch (KIP-360)",
    "InitProducerId enable2Pc": "KIP-939",
    "InitProducerId keepPreparedTxn": "KIP-939",
    "InitProducerId both (v6)": "KIP-939",
    "InitProducerId neither (v6)": "KIP-939",
    "AddPartitionsToTxn a/0, a/0 twice in one request": "a partition is answered once",
    "Produce a/0 the sequence of the": "Kafka acknowledges the batch as a repeat of one in a transaction that has ended, and does not write it",
    "WriteTxnMarkers without topics": "each marker has a result",
    "WriteTxnMarkers of producer -1": "a clear error instead of UNKNOWN_SERVER_ERROR",
    "WriteTxnMarkers of epoch -1": "a clear error instead of UNKNOWN_SERVER_ERROR",
    "AddPartitionsToTxn of a broker: verify a/0 before any (v4)": "TRANSACTION_ABORTABLE is from version 5 on",
    "AddPartitionsToTxn of a broker: verify a/0, a/1 one of them not added (v4)": "TRANSACTION_ABORTABLE is from version 5 on",
}  # fmt: skip


def play(bootstrap: str, only: str) -> Answers:
    """The requests and answers of each scenario."""
    found: Answers = {}
    run = uuid.uuid4().hex[:6]
    with KioClient(bootstrap) as client:
        Player(client, run).warm_up()
        for number, (title, body) in enumerate(SCENARIOS.items()):
            if not re.search(only, title):
                continue
            player = Player(client, f"{run}-{number}")
            began = time.monotonic()
            try:
                body(player)
            except Exception as error:
                player.note("the scenario", f"cannot go on: {type(error).__name__}: {error}")
            found[title] = [(each.request, each.answer) for each in player.steps]
            print(f"{time.monotonic() - began:6.1f} s  {title}", file=sys.stderr, flush=True)
    return found


def answers_of(kind: str, only: str, bootstrap: str) -> Answers:
    if bootstrap:
        found = play(bootstrap, only)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="transaction-errors-") as folder,
            KINDS[kind](
                Path(folder), settings=SETTINGS if kind == "kafka" else None
            ).start() as server,
        ):
            found = play(server.bootstrap, only)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{kind}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False))
    return found


def compare(kafka: Answers, zhumq: Answers, *, every: bool) -> tuple[int, int]:
    """Print the differences, or `every` answer; the numbers of differences: those that should not be, and those on purpose."""
    wrong = meant = 0
    for title in kafka:
        lines = []
        theirs, ours = kafka[title], zhumq.get(title, [])
        for number in range(max(len(theirs), len(ours))):
            request, expected = theirs[number] if number < len(theirs) else ("", "(no request)")
            our_request, answer = ours[number] if number < len(ours) else ("", "(no request)")
            if (request, expected) == (our_request, answer):
                if every:
                    lines.append(f"    {request}\n        both   {expected}")
                continue
            shown = request if request == our_request else f"{request} | {our_request}"
            reason = next((ON_PURPOSE[each] for each in ON_PURPOSE if shown.startswith(each)), "")
            wrong += not reason
            meant += bool(reason)
            if reason and not every:
                continue
            mark = f"  ({reason})" if reason else ""
            lines.append(f"  ! {shown}{mark}\n        kafka  {expected}\n        zhumq  {answer}")
        if lines:
            print(f"{title}\n" + "\n".join(lines))
    return wrong, meant


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="a regular expression of the titles of scenarios"
    )
    parser.add_argument(
        "--all", action="store_true", help="print the answers that are the same, too"
    )
    parser.add_argument(
        "--server", choices=sorted(KINDS), help="ask this one alone and print what it answers"
    )
    parser.add_argument(
        "--bootstrap", default="", help="of a running server, instead of a new one: needs --server"
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help=f"take Kafka's answers from {RESULTS.name}/kafka.json",
    )
    arguments = parser.parse_args()
    if arguments.server:
        for title, steps in answers_of(
            arguments.server, arguments.only, arguments.bootstrap
        ).items():
            print(title)
            for request, answer in steps:
                print(f"    {request}\n        {answer}")
        return 0
    if arguments.recorded:
        recorded: Answers = json.loads((RESULTS / "kafka.json").read_text())
        kafka = {
            title: [(request, answer) for request, answer in steps]
            for title, steps in recorded.items()
            if re.search(arguments.only, title)
        }
    else:
        kafka = answers_of("kafka", arguments.only, "")
    zhumq = answers_of("zhumq", arguments.only, "")
    wrong, meant = compare(kafka, zhumq, every=arguments.all)
    print(
        f"{sum(map(len, kafka.values()))} requests in {len(kafka)} scenarios, {wrong} answers differ,"
        f" {meant} others on purpose (--all shows them)"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
