"""Indexes, leader epochs, checkpoints, retention."""

import uuid

import pytest

from zhumq.model.errors import DataDirUnusable, SettingInvalid
from zhumq.model.ids import TopicPartition
from zhumq.storage.checkpoints import (
    CheckpointCorrupt,
    MetaProperties,
    decode_offsets,
    encode_leader_epochs,
    encode_offsets,
    read_leader_epochs,
    read_meta,
    read_topic_id,
    write_meta,
    write_topic_id,
)
from zhumq.storage.indexes import IndexCorrupt, OffsetIndex, TimeIndex
from zhumq.storage.leader_epochs import EpochStart, LeaderEpochs
from zhumq.storage.log_config import LogConfig
from zhumq.testing.disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/data")
    return disk


def test_an_offset_index_finds_the_batch_before() -> None:
    index = OffsetIndex(100)
    for last_offset, position in ((109, 4000), (119, 9000), (150, 14000)):
        index.append(last_offset, position)
    expected = {99: 0, 100: 0, 108: 0, 109: 4000, 118: 4000, 119: 9000, 150: 14000, 9999: 14000}
    assert {offset: index.position_before(offset) for offset in expected} == expected
    assert [index.boundary_before(at) for at in (0, 3999, 4000, 13999, 10**6)] == [
        0,
        0,
        4000,
        9000,
        14000,
    ]
    assert index.encode() == bytes.fromhex("00000009 00000fa0 00000013 00002328 00000032 000036b0")
    index.truncate_to(9000)
    assert len(index) == 1


def test_a_time_index_holds_each_new_maximum() -> None:
    index = TimeIndex(100)
    for timestamp, offset in ((5, 101), (5, 102), (3, 103), (9, 104), (-1, 105)):
        index.append_if_larger(timestamp, offset)
    assert index.last == (9, 104)
    assert [index.offset_before(at) for at in (0, 5, 8, 9, 100)] == [100, 101, 101, 104, 104]
    assert index.encode() == bytes.fromhex("0000000000000005 00000001 0000000000000009 00000004")
    index.truncate_to(104)
    assert index.last == (5, 101)


def test_index_files_that_make_no_sense_are_refused() -> None:
    good = OffsetIndex(0)
    good.append(5, 100)
    good.append(9, 200)
    assert OffsetIndex.decode(good.encode(), 0, 300).encode() == good.encode()
    for data in (good.encode()[:-1], good.encode() * 2, bytes(16)):
        with pytest.raises(IndexCorrupt):
            OffsetIndex.decode(data, 0, 300)
    with pytest.raises(IndexCorrupt):
        OffsetIndex.decode(good.encode(), 0, 200)
    times = TimeIndex(0)
    times.append_if_larger(5, 1)
    assert TimeIndex.decode(times.encode(), 0).last == (5, 1)
    for data in (times.encode() + b"x", times.encode() * 2):
        with pytest.raises(IndexCorrupt):
            TimeIndex.decode(data, 0)


def test_an_epoch_ends_where_the_next_begins() -> None:
    epochs = LeaderEpochs([EpochStart(2, 10), EpochStart(5, 30), EpochStart(7, 40)])
    asked = {
        -1: (-1, -1),
        0: (0, 10),
        1: (1, 10),
        2: (2, 30),
        3: (2, 30),
        5: (5, 40),
        6: (5, 40),
        7: (7, 99),
        8: (-1, -1),
    }
    assert {epoch: tuple(epochs.end_offset_for(epoch, 99)) for epoch in asked} == asked
    assert [epochs.epoch_of(offset) for offset in (9, 10, 29, 30, 99)] == [-1, 2, 2, 5, 7]


def test_an_epoch_is_added_once() -> None:
    epochs = LeaderEpochs()
    assert epochs.assign(3, 0)
    assert not epochs.assign(3, 5)
    assert not epochs.assign(2, 6)
    assert not epochs.assign(-1, 6)
    assert epochs.assign(4, 0)
    assert epochs.entries == (EpochStart(4, 0),)


def test_epochs_are_cut_at_both_ends() -> None:
    epochs = LeaderEpochs([EpochStart(2, 10), EpochStart(5, 30), EpochStart(7, 40)])
    assert epochs.truncate_end(40)
    assert epochs.latest_epoch == 5
    assert epochs.truncate_start(20)
    assert epochs.entries == (EpochStart(2, 20), EpochStart(5, 30))
    assert not epochs.truncate_start(20)
    assert epochs.truncate_end(0)
    assert (epochs.entries, epochs.latest_epoch) == ((), -1)
    assert not epochs.truncate_start(7)


def test_checkpoints_are_kafkas_text_files(disk: MemoryDisk) -> None:
    offsets = {TopicPartition("a-b.c", 3): 17, TopicPartition("x", 0): 0}
    disk.write_file("/data/points", encode_offsets(offsets), sync=True)
    assert disk.read_file("/data/points") == b"0\n2\na-b.c 3 17\nx 0 0\n"
    assert decode_offsets(disk.read_file("/data/points")) == offsets
    assert decode_offsets(disk.read_file("/data/absent")) == {}
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(4, 9)])
    disk.write_file("/data/epochs", encode_leader_epochs(epochs), sync=True)
    assert disk.read_file("/data/epochs") == b"0\n2\n1 0\n4 9\n"
    read = read_leader_epochs(disk, "/data/epochs")
    assert read is not None
    assert read.entries == epochs.entries
    topic_id = uuid.UUID("8a2f4c9e-1b3d-4e5f-8a6b-7c8d9e0f1a2b")
    write_topic_id(disk, "/data/partition", topic_id)
    assert disk.read_file("/data/partition") == b"version: 0\ntopic_id: ii9Mnhs9Tl-Ka3yNng8aKw"
    assert read_topic_id(disk, "/data/partition") == topic_id


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na x 1\n",
        b"\xff\xfe",
        b"x\ny",
    ],
)
def test_a_damaged_checkpoint_is_recognised(disk: MemoryDisk, content: bytes) -> None:
    disk.write_file("/data/points", content, sync=True)
    with pytest.raises(CheckpointCorrupt):
        decode_offsets(disk.read_file("/data/points"))
    assert read_leader_epochs(disk, "/data/points") is None


@pytest.mark.parametrize("content", [b"", b"garbage", b"version: 0\ntopic_id: short", b"\xff"])
def test_a_damaged_topic_id_file_is_read_as_none(disk: MemoryDisk, content: bytes) -> None:
    disk.write_file("/data/partition", content, sync=True)
    assert read_topic_id(disk, "/data/partition") is None


def test_a_data_folder_names_its_owner(disk: MemoryDisk) -> None:
    disk.write_file("/data/meta", b"node.id=x\ncluster.id=y\n", sync=True)
    with pytest.raises(DataDirUnusable):
        read_meta(disk, "/data/meta")
    meta = MetaProperties(broker_id=3, cluster_id="abc=")
    write_meta(disk, "/data/meta", meta)
    assert read_meta(disk, "/data/meta") == meta
    assert read_meta(disk, "/data/absent") is None


def test_a_segment_size_that_positions_cannot_express_is_refused() -> None:
    for size in (0, 2**31):
        with pytest.raises(SettingInvalid):
            LogConfig(segment_bytes=size)
