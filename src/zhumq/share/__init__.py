"""Share partitions and subscriptions: which message is delivered, acquired, acknowledged."""
