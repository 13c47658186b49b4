"""The Python client: consumers, workers, administration, and the blocking wire client."""
