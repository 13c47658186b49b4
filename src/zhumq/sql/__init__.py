"""SQL over topics: every topic is a table, joined with its archive."""
