"""The console and the REST API, a process beside the brokers: each request asks them with the rights of its caller."""
