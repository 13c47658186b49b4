"""A progress bar on stderr, shown only at a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn


@contextmanager
def progress_bar(
    *columns: ProgressColumn, shown: bool = True, total_min: int = 0, transient: bool = True
) -> Iterator[Callable[[int, int], None]]:
    """A function that takes what is done and the total. A bar of less than `total_min` is hidden."""
    console = Console(stderr=True)
    disable = not (shown and console.is_terminal)
    with Progress(*columns, console=console, transient=transient, disable=disable) as bar:
        task = bar.add_task("", total=None, visible=False)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=total >= total_min)

        yield report
