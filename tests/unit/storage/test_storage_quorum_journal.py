"""Quorum states survive crashes, and the journal detects when some may be missing."""

import struct
import uuid

import pytest

from zhumq.consensus.contract import Mode, QuorumState
from zhumq.model.errors import DiskFull, StorageFailed
from zhumq.records.codecs import crc32c
from zhumq.storage import quorum_journal
from zhumq.storage.quorum_journal import QuorumJournal
from zhumq.testing.disk import MemoryDisk

PATH = "/data/quorum-journal"
TOPIC = uuid.UUID(int=7)
KEY = (TOPIC, 0)
OTHER = (TOPIC, 1)
STATE = QuorumState(epoch=3, voted_for=2)
ENTRY_BYTES = 57


def _disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/data")
    return disk


def test_the_newest_state_of_each_replica_is_found_after_a_crash() -> None:
    disk = _disk()
    journal = QuorumJournal(disk, PATH)
    assert not journal.is_intact
    journal.write([(KEY, STATE), (OTHER, QuorumState(mode=Mode.FETCH, leader_id=1, epoch=8))])
    newest = QuorumState(epoch=4, leader_id=2, recovering=True, votes_unknown=True)
    journal.write([(KEY, newest)])
    disk.crash()
    again = QuorumJournal(disk, PATH)
    assert again.is_intact
    assert again.find(KEY) == newest
    assert again.find(OTHER) == QuorumState(mode=Mode.FETCH, leader_id=1, epoch=8)
    assert again.find((TOPIC, 2)) is None


def test_an_accepted_epoch_is_found_after_a_crash() -> None:
    disk = _disk()
    accepted = QuorumState(epoch=5, leader_id=2, accepted_epoch=5, accepted_offset=1_024)
    QuorumJournal(disk, PATH).write([(KEY, accepted)])
    disk.crash()
    assert QuorumJournal(disk, PATH).find(KEY) == accepted


def _entry_of_a_release_before_acceptance(epoch: int) -> bytes:
    body = struct.pack(">16siqiiB", TOPIC.bytes, 0, epoch, 2, -1, 0)
    return struct.pack(">I", crc32c(body)) + body


def test_a_journal_from_before_epochs_were_accepted_is_read_and_written_anew() -> None:
    disk = _disk()
    data = _entry_of_a_release_before_acceptance(2) + _entry_of_a_release_before_acceptance(3)
    disk.write_file(PATH, data + b"torn", sync=True)
    journal = QuorumJournal(disk, PATH)
    assert journal.is_intact
    assert journal.find(KEY) == STATE
    journal.write([(OTHER, STATE)])
    disk.crash()
    again = QuorumJournal(disk, PATH)
    assert again.is_intact
    assert dict(again.states) == {KEY: STATE, OTHER: STATE}
    again.write([(KEY, QuorumState(epoch=9))])
    assert QuorumJournal(disk, PATH).find(KEY) == QuorumState(epoch=9)


def test_a_journal_whose_first_bytes_are_damaged_is_not_taken_for_an_empty_one() -> None:
    disk = _disk()
    QuorumJournal(disk, PATH).write([(KEY, STATE), (OTHER, STATE)])
    data = bytearray(disk.read_file(PATH) or b"")
    data[3] ^= 1
    disk.write_file(PATH, data, sync=True)
    assert not QuorumJournal(disk, PATH).is_intact


def test_an_empty_journal_of_an_earlier_release_is_intact() -> None:
    disk = _disk()
    disk.write_file(PATH, b"", sync=True)
    journal = QuorumJournal(disk, PATH)
    assert journal.is_intact
    journal.write([(KEY, STATE)])
    assert QuorumJournal(disk, PATH).find(KEY) == STATE


def test_what_was_forgotten_stays_forgotten() -> None:
    disk = _disk()
    journal = QuorumJournal(disk, PATH)
    journal.write([(KEY, STATE)])
    journal.write([(KEY, None)])
    assert journal.find(KEY) is None
    assert dict(QuorumJournal(disk, PATH).states) == {}


@pytest.mark.parametrize("kept_bytes", [0, 1, ENTRY_BYTES - 1])
def test_a_torn_end_was_never_acknowledged(kept_bytes: int) -> None:
    disk = _disk()
    journal = QuorumJournal(disk, PATH)
    journal.write([(KEY, STATE)])
    whole = disk.read_file(PATH) or b""
    journal.write([(KEY, QuorumState(epoch=9))])
    torn = (disk.read_file(PATH) or b"")[: len(whole) + kept_bytes]
    disk.write_file(PATH, torn, sync=True)
    again = QuorumJournal(disk, PATH)
    assert again.is_intact
    assert again.find(KEY) == STATE
    again.write([(OTHER, STATE)])
    assert QuorumJournal(disk, PATH).find(OTHER) == STATE


def test_damage_before_the_end_means_that_no_vote_is_trusted() -> None:
    disk = _disk()
    journal = QuorumJournal(disk, PATH)
    journal.write([(KEY, STATE), (OTHER, STATE)])
    data = bytearray(disk.read_file(PATH) or b"")
    data[10] ^= 1
    disk.write_file(PATH, data, sync=True)
    again = QuorumJournal(disk, PATH)
    assert not again.is_intact
    assert again.find(OTHER) == STATE


def test_lost_states_are_recorded_atomically_or_again_at_the_next_start() -> None:
    disk = _disk()
    lost = QuorumState(mode=Mode.FETCH, recovering=True, votes_unknown=True)
    assert not QuorumJournal(disk, PATH).is_intact
    # A start that ends before it recorded the loss leaves no journal.
    journal = QuorumJournal(disk, PATH)
    assert not journal.is_intact
    disk.bytes_free = 10
    with pytest.raises(DiskFull):
        journal.admit([(KEY, lost), (OTHER, lost)])
    assert not QuorumJournal(disk, PATH).is_intact
    disk.bytes_free = None
    journal.admit([(KEY, lost), (OTHER, lost)])
    disk.crash()
    again = QuorumJournal(disk, PATH)
    assert again.is_intact
    assert dict(again.states) == {KEY: lost, OTHER: lost}


def test_a_damaged_journal_is_intact_again_once_the_loss_is_recorded() -> None:
    disk = _disk()
    QuorumJournal(disk, PATH).write([(KEY, STATE), (OTHER, STATE)])
    data = bytearray(disk.read_file(PATH) or b"")
    data[10] ^= 1
    disk.write_file(PATH, data, sync=True)
    unsure = QuorumState(epoch=STATE.epoch, recovering=True, votes_unknown=True)
    QuorumJournal(disk, PATH).admit([(KEY, unsure), (OTHER, unsure)])
    again = QuorumJournal(disk, PATH)
    assert again.is_intact
    assert dict(again.states) == {KEY: unsure, OTHER: unsure}


def test_a_journal_that_grew_too_long_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_journal, "_ENTRIES_MIN", 10)
    disk = _disk()
    journal = QuorumJournal(disk, PATH)
    for epoch in range(100):
        journal.write([(KEY, QuorumState(epoch=epoch)), (OTHER, STATE)])
    assert len(disk.read_file(PATH) or b"") <= 12 * ENTRY_BYTES
    again = QuorumJournal(disk, PATH)
    assert again.find(KEY) == QuorumState(epoch=99)
    assert again.find(OTHER) == STATE


def test_a_failed_sync_is_final_and_a_full_disk_is_not() -> None:
    disk = _disk()
    journal = QuorumJournal(disk, PATH)
    disk.bytes_free = 10
    with pytest.raises(DiskFull):
        journal.write([(KEY, STATE)])
    assert journal.find(KEY) is None
    disk.bytes_free = None
    journal.write([(KEY, STATE)])
    disk.sync_fails = lambda _: True
    with pytest.raises(StorageFailed):
        journal.write([(OTHER, STATE)])
    disk.sync_fails = lambda _: False
    with pytest.raises(StorageFailed):
        journal.write([(OTHER, STATE)])
    assert journal.find(OTHER) is None
