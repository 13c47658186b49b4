"""The replicas of one partition: elections, following a leader, the high watermark."""
