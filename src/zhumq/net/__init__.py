"""Sockets: listeners, connections, and their limits."""
