from hypothesis import given, settings
from hypothesis import strategies as st

from zhumq.model.replication_mode import Mode, read_modes, write_modes


@settings(derandomize=True, database=None)
@given(st.lists(st.sampled_from(Mode)))
def test_modes_of_partitions_are_read_as_they_were_written(modes: list[Mode]) -> None:
    assert read_modes(write_modes(modes)) == modes


def test_partitions_alike_are_one_run() -> None:
    assert write_modes([Mode.RAFT] * 10_000) == "0-9999:raft"
    assert write_modes([Mode.RAFT, Mode.RAFT, Mode.FETCH]) == "0-1:raft,2:fetch"
