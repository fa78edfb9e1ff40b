"""One rank that mpirun started: connect back to the driver and serve. Run as a module by
mpirun.py.
"""

import os
import sys
from multiprocessing.connection import Client

from collbench.launch.group import RankContext
from collbench.launch.launcher import launcher, leave_mpi, load_mpi, unlink_segments
from collbench.launch.mpirun import KEY_VARIABLE
from collbench.launch.server import die_with_parent, rank_class, serve
from collbench.launch.watchdog import Watchdog
from collbench.util.errors import CollbenchError

LEAVE_S = 5.0  # how long all ranks may take to leave MPI together


def main(address: str, rank: str) -> None:
    """Serve one rank of that class (see rank_name) for the driver at that abstract address."""
    die_with_parent(os.getppid())
    try:
        endpoint = Client(
            f"\0{address}", "AF_UNIX", authkey=bytes.fromhex(os.environ.pop(KEY_VARIABLE))
        )
    except (OSError, EOFError):
        sys.exit(4)  # the driver has gone
    try:
        mpi = load_mpi(launcher())
    except CollbenchError as error:
        endpoint.send((-1, os.getpid(), error.message))
        sys.exit(error.exit_code)
    comm = mpi.COMM_WORLD
    watchdog = Watchdog(comm)
    unlink_segments()
    endpoint.send((comm.Get_rank(), os.getpid(), ""))
    context = RankContext(rank=comm.Get_rank(), n=comm.Get_size(), comm=comm, watchdog=watchdog)
    serve(endpoint, rank_class(rank)(context))
    watchdog.close()
    with watchdog.limit("the others to leave MPI", LEAVE_S):
        comm.Barrier()
    leave_mpi(mpi)


if __name__ == "__main__":
    main(*sys.argv[1:3])
