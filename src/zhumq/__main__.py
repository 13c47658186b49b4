"""`python -m zhumq`: the same as the `zhumq` command."""

from zhumq.cli.main import main

if __name__ == "__main__":
    main()
