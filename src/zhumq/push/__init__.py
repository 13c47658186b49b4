"""The push listener: streams messages to consumers over gRPC."""
