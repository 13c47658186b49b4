"""The terminal UI (`zhumq ui`): topics, groups, brokers and the tail of a topic, read through administration."""
