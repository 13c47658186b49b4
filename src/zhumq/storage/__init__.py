"""Bytes on disk: logs, segments, indexes, checkpoints."""
