"""The metadata image of the cluster, and the decisions that change it."""
