"""`collbench` with a check of one size and one repeat, where what a test asserts is not how much a
check measures: `python -m tests.support.short_check check ...`.
"""

from collbench.backends import repeat
from collbench.cli import main
from collbench.doctor import run_check


def shorten() -> None:
    """Of this process, in as much time as a busy machine takes, with few sets of buffers."""
    run_check.CHECK_SIZES = {"cpu": ("4K",), "cuda": ("4K",)}
    run_check._REPEATS = 1
    repeat.MAX_ROTATIONS = 3
    run_check._MINUTE_S = 1000.0


if __name__ == "__main__":
    shorten()
    main()
