"""What commands that measure begin and end with: the group that the environment gives, rank 0 as
its driver, and how all ranks leave. What starts and ends ranks is imported where it is needed.
"""

from collections.abc import Callable

from collbench.core.complaint import complain
from collbench.core.errors import CollbenchError, HangError
from collbench.core.group import Group
from collbench.core.launcher import Launcher, launcher


def group_here(timeout_s: float) -> Group:
    """The ranks of the launcher above, or this host's; one that is seen stopped or gone may keep
    the others for timeout_s.
    """
    started = launcher()
    if started is None:
        return local_group(timeout_s)
    from collbench.launch.mpi import MpiGroup

    return MpiGroup(started, timeout_s)


def local_group(timeout_s: float | None = None) -> Group:
    """The ranks of this host alone. timeout_s: as of group_here; None: the usual one."""
    from collbench.launch.local import LocalGroup

    return LocalGroup() if timeout_s is None else LocalGroup(timeout_s)


def watch_over(started: Launcher) -> None:
    """Watch over this rank: before anything starts that a child process would not have."""
    from collbench.launch.watchdog import watchdog_of

    watchdog_of(started)


def drive_on_rank0(group: Group, drive: Callable[[], int]) -> int:
    """Drive on rank 0, serve on all others, and leave together; returns the exit code."""
    if group.rank != 0:
        return group.serve()
    code = 3
    try:
        code = drive()
    except (HangError, KeyboardInterrupt) as error:
        if group.kind == "mpi":  # some ranks may never answer again: leaving MPI together is over
            group.abort(complain(error))
        raise
    except CollbenchError as error:
        code = error.exit_code
        raise
    finally:
        group.close(code)
    return code
