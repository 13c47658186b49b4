"""The data source for Spark, which reads and writes topics."""
