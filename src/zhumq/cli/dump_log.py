"""`zhumq dump-log`: print the contents of a segment, index or snapshot file in the format of Kafka's tool."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, assert_never

import typer

from zhumq.cli.messages import text_or_base64
from zhumq.cli.options import CommandFailed
from zhumq.host.disk import SystemDisk
from zhumq.storage.dump import (
    TIMESTAMP_NAMES,
    Dumped,
    DumpedAborted,
    DumpedBatch,
    DumpedOffsetEntry,
    DumpedProblem,
    DumpedProducer,
    DumpedRecord,
    DumpedTimeEntry,
    dump_file,
)

app = typer.Typer()


@app.command()
def dump_log(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help=".log, .index, .timeindex, .txnindex or .snapshot files."
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Also the records in each batch of a log.")
    ] = False,
    content: Annotated[
        bool, typer.Option("--content", help="Also the keys and values of the records.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Show the contents of a file of a partition.

    Prints the same facts as Kafka's DumpLogSegments. The exit code is 0 only if nothing is damaged.
    """
    damaged = []
    for file in files:
        if not file.is_file():
            raise CommandFailed(f"there is no file {file}")
        if not as_json:
            _print_heading(file)
        found = dump_file(str(file), disk=SystemDisk(), records=records, content=content)
        for each in found:
            if isinstance(each, DumpedProblem) or (
                isinstance(each, DumpedBatch) and not each.is_valid
            ):
                damaged.append(file)
            if as_json:
                sys.stdout.write(json.dumps(_facts(each), ensure_ascii=False) + "\n")
            else:
                sys.stdout.write(f"{each}\n")
    if damaged:
        raise CommandFailed(f"{damaged[0]} is damaged: the lines above say where")


def _print_heading(file: Path) -> None:
    """Print the heading of Kafka's tool."""
    sys.stdout.write(f"Dumping {file}\n")
    if file.suffix == ".log" and file.stem.isdigit():
        sys.stdout.write(f"Log starting offset: {int(file.stem)}\n")


def _facts(dumped: Dumped) -> Mapping[str, Any]:
    match dumped:
        case DumpedBatch(header=header):
            return {
                "base_offset": header.base_offset,
                "last_offset": header.last_offset,
                "count": header.records_count,
                "base_sequence": header.base_sequence,
                "last_sequence": header.last_sequence,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "partition_leader_epoch": header.partition_leader_epoch,
                "is_transactional": header.is_transactional,
                "is_control": header.is_control,
                "position": dumped.position,
                "timestamp_type": TIMESTAMP_NAMES[header.timestamp_type],
                "max_timestamp": header.max_timestamp,
                "size": header.size,
                "magic": header.magic,
                "compression": header.compression.name.lower() if dumped.is_valid else None,
                "crc": header.crc,
                "is_valid": dumped.is_valid,
            }
        case DumpedRecord(record=record):
            facts: dict[str, Any] = {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key_size": -1 if record.key is None else len(record.key),
                "value_size": -1 if record.value is None else len(record.value),
                "header_names": [name for name, _ in record.headers],
            }
            if dumped.show_content:
                facts |= {"key": text_or_base64(record.key), "value": text_or_base64(record.value)}
            return facts
        case DumpedOffsetEntry():
            return {"offset": dumped.offset, "position": dumped.position}
        case DumpedTimeEntry():
            return {"timestamp": dumped.timestamp, "offset": dumped.offset}
        case DumpedProducer(entry=entry):
            return {
                "producer_id": dumped.producer_id,
                "producer_epoch": entry.epoch,
                "coordinator_epoch": entry.coordinator_epoch,
                "last_timestamp": entry.last_timestamp,
                "transaction_first_offset": entry.transaction_first_offset,
                "batches": [
                    {
                        "first_sequence": batch.first_sequence,
                        "last_sequence": batch.last_sequence,
                        "last_offset": batch.last_offset,
                        "timestamp": batch.timestamp,
                    }
                    for batch in entry.batches
                ],
            }
        case DumpedAborted(aborted=aborted):
            return {"version": dumped.version, **aborted._asdict()}
        case DumpedProblem():
            return {"problem": dumped.reason}
        case _:
            assert_never(dumped)
