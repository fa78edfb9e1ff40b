"""One rank that mpirun started, as a module by mpirun.py: it serves the driver."""

import os
import signal
import socket
import sys
from multiprocessing.connection import Connection

from collbench.core.errors import CollbenchError, HangError
from collbench.core.group import RankContext
from collbench.core.launcher import INTERRUPTIONS, Launcher, launcher, load_mpi
from collbench.launch.mpirun import HELLO, KEY_VARIABLE
from collbench.launch.processes import die_with_parent
from collbench.launch.server import rank_class, serve
from collbench.launch.watchdog import watchdog_of


def main(driver: str, address: str, rank: str, lost_s: str) -> None:
    """Serve one rank of that class (see rank_name) for the process that drives, at that abstract
    address. lost_s: how long one that is seen stopped or gone may keep the others.
    """
    die_with_parent(os.getppid())
    for number in INTERRUPTIONS:
        signal.signal(number, signal.SIG_IGN)  # the driver decides
    started = launcher() or Launcher(vendor="MPICH", size=1, rank=0)
    watchdog = watchdog_of(started, int(driver))
    watchdog.start(float(lost_s))
    endpoint = _connect(address, started.rank)
    try:
        mpi = load_mpi(started)
    except CollbenchError as error:
        endpoint.send(error.message)
        sys.exit(error.exit_code)
    comm = mpi.COMM_WORLD
    watchdog.join(comm)
    endpoint.send("")
    context = RankContext(
        rank=comm.Get_rank(),
        n=comm.Get_size(),
        local_rank=comm.Get_rank(),  # all are on this host
        comm=comm,
        watchdog=watchdog,
    )
    with watchdog.guarded():
        serve(endpoint, rank_class(rank)(context), fatal=(mpi.Exception,))
        watchdog.leave_mpi(mpi)


def _connect(address: str, rank: int) -> Connection:
    """The connection to the driver, which now knows this rank. Ends this process if it has gone."""
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(f"\0{address}")
        end.sendall(bytes.fromhex(os.environ.pop(KEY_VARIABLE)) + HELLO.pack(rank, os.getpid()))
    except OSError:
        sys.exit(HangError.exit_code)
    return Connection(end.detach())


if __name__ == "__main__":
    main(*sys.argv[1:5])
