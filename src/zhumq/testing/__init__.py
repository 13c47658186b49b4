"""For users' tests: a broker in the process, a cluster of processes, and the pytest plugin."""
