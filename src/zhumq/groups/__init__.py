"""Consumer groups and share groups: members, assignments, committed offsets."""
