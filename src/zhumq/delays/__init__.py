"""Delayed messages: when one is due, and which are pending, in the order of their due times."""
