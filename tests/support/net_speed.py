"""What proxies of GPUs can do at most on a machine, without its GPUs: kernels that take no time
fill every free slot and read every slot that has come.

    mpirun -n RANKS python -m tests.support.net_speed SIZE [KNOB=VALUE ...]

for example 16777216 channels=2 chunk=262144 op=allgather algo=ring threads=4.

Prints microseconds a message, GB/s into a rank, on average, and microseconds a turn, of rank 0's
best of five repeats. A sweep with --transport net cannot be faster than that; where it is far
slower, the GPUs or the order of the schedule keep messages waiting. With `-m cProfile -s tottime`
before the module both tell where Python's time goes.
"""

import sys
import time

import numpy as np

from collbench.backends.net.gpu_proxy import Outside, net_bytes, slots_offset
from collbench.backends.net.proxy import SendConnector, data_comm_of
from collbench.backends.net.receivers import Receivers
from collbench.core.case import Case
from collbench.core.host import own_pages
from collbench.planning.planner import resolve

REPEATS, LAUNCHES = 5, 10


def main(size: str, *knobs: str) -> None:
    """One rank's part."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    given = dict(knob.split("=") for knob in knobs)
    threads = int(given.pop("threads", 0))
    text = {"op": given.pop("op", "allreduce"), "algo": given.pop("algo", "auto")}
    numbers = {name: int(value) for name, value in {**given, "size_bytes": size}.items()}
    case = Case(
        backend="cuda",
        proto="simple",
        transport="net",
        ranks=world.Get_size(),
        **text,  # type: ignore[arg-type]
        **numbers,  # type: ignore[arg-type]
    )
    plan = resolve(case.rounded()).plan
    words_bytes, slots_bytes, _ = net_bytes([plan], has_gpu_slots=False)
    memory = np.frombuffer(own_pages(slots_offset(words_bytes) + slots_bytes), np.uint8)
    memory[:] = 0
    data_comm = data_comm_of(world)
    receivers = Receivers(threads, data_comm.fault) if threads else None
    outside = Outside(
        data_comm,
        memory.ctypes.data,
        words_bytes,
        slots_bytes,
        near=range(data_comm.n),
        receivers=receivers,
    )
    proxy, words = outside.proxy_of(plan), outside.words
    found = []
    for _ in range(REPEATS):
        outside.clear(proxy)
        proxy.expect(LAUNCHES)
        world.Barrier()
        start, turns = time.perf_counter(), 0
        while not proxy.is_idle():
            for end in proxy.ends:
                words[end.kernel_word] = (
                    min(end.limit, end.done + plan.slots)
                    if isinstance(end, SendConnector)
                    else end.done
                )
            proxy.turn()
            turns += 1
        found.append(((time.perf_counter() - start) / LAUNCHES, turns))
        world.Barrier()
    seconds, turns = min(found)
    sent = [end.launched for end in proxy.ends if isinstance(end, SendConnector)]
    mine = [message.size for launched in sent for message in launched]
    count, total = (world.allreduce(number) / data_comm.n for number in (len(mine), sum(mine)))
    if world.Get_rank() == 0:
        print(
            f"{plan.schedule.name}, {plan.channels} channels, {plan.slots} slots of"
            f" {plan.slot_bytes}, {threads} threads: {1e6 * seconds / count:.2f} us a message,"
            f" {total / seconds / 1e9:.2f} GB/s, {1e6 * seconds * LAUNCHES / turns:.2f} us a turn"
        )
    assert outside.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
