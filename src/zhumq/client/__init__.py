"""The Python client: producers, consumers, workers, and the blocking wire client."""
