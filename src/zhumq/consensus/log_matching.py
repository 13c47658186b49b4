"""Log matching: whether a follower's log is a prefix of the leader's, and where the two diverge."""

from zhumq.consensus.contract import NO_EPOCH, EpochEnd, FetchArrived, LogPosition, LogView


def is_prefix(log: LogView, fetch: FetchArrived) -> bool:
    """Records of the same epoch at one offset mean equal logs up to it."""
    if not log.log_start_offset <= fetch.fetch_offset <= log.log_end_offset:
        return False
    if fetch.last_fetched_epoch == NO_EPOCH:
        # The follower's log is empty: what was below is committed and deleted, nothing can diverge.
        return True
    if fetch.fetch_offset == log.log_start_offset:
        return False
    return log.epoch_of(fetch.fetch_offset - 1) == fetch.last_fetched_epoch


def divergence(
    log: LogView, position: LogPosition, fetch: FetchArrived
) -> tuple[EpochEnd | None, int | None]:
    """Where the follower has to truncate, or where to start over if that is unknown."""
    if fetch.fetch_offset <= log.log_start_offset or fetch.last_fetched_epoch == NO_EPOCH:
        return None, log.log_start_offset
    epoch, end_offset = log.end_offset_for_epoch(fetch.last_fetched_epoch)
    if epoch == NO_EPOCH:
        # The follower's last epoch is above every epoch here: it ends at the end of this log.
        epoch, end_offset = position
    if end_offset <= log.log_start_offset:
        return None, log.log_start_offset
    return EpochEnd(epoch, end_offset), None
