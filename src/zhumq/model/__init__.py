"""The words of all rooms: ids, errors, settings."""
