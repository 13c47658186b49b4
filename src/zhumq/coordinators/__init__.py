"""Runs replicated state machines: groups, delivery state, dead letters."""
