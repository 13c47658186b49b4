"""The schema registry: subjects, versions and ids of schemas, which schemas are compatible, and the records of its log."""
