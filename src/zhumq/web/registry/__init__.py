"""The schema registry over HTTP, with the paths, bodies and error codes of Confluent's."""
