"""Transactions: the state of each transactional id, its producer, its open transaction."""
