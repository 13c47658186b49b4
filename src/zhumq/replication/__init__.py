"""Partitions as the broker serves them, with their replicas on this broker and on others."""
