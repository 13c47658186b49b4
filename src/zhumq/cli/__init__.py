"""The `zhumq` command, with one small file per noun."""
