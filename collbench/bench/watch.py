"""The first thing that a rank of a launcher does, before it imports what takes long."""

from collbench.core.launcher import Launcher


def watch_over(started: Launcher) -> None:
    """Watch over this rank: before anything starts that a child process would not have."""
    from collbench.launch.watchdog import watchdog_of

    watchdog_of(started)
