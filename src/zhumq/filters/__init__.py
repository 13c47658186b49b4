"""Filters of messages: tags, and SQL conditions on headers, keys and JSON values, compiled once."""
