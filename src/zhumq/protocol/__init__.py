"""Requests and responses, from and to bytes."""
