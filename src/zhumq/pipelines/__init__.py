"""Pipelines on Spark that are written as files: archive, inspect, audit, replay."""
