"""The cluster as this broker sees it: metadata store, membership, controller."""
