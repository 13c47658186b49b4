"""The program: handlers of Kafka's requests, and the composition root, which wires all parts together."""
