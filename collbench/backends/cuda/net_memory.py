"""The driver's side of messages between ranks on GPUs: their memory and threads."""

from collections.abc import Callable, Sequence

from collbench.backends.base import GpuOptions
from collbench.backends.cuda.rank import CudaRank
from collbench.backends.gpu.session import START_S
from collbench.backends.net.gpu_proxy import may_be_on_gpu, net_bytes
from collbench.backends.net.receivers import may_take_threads, receivers_for
from collbench.core.errors import RefusedError
from collbench.core.group import WorkerGroup
from collbench.planning.plan import Plan


def reserve_net(
    workers: WorkerGroup[CudaRank], plans: Sequence[Plan], options: GpuOptions, hosts: Sequence[str]
) -> tuple[str, int, Callable[[Plan], None]]:
    """Let ranks, on those hosts, have memory for the messages of plans, and threads to receive
    large ones of their host.

    Returns a description of it, the bytes of a rank, and what raises RefusedError for a plan
    that cannot run as it was asked for.
    """
    if not plans:
        return "", 0, lambda plan: None
    libraries = workers.call(CudaRank.mpi, timeout_s=START_S)
    library = libraries[0][0]
    not_on_gpu = next((why for _, why, _ in libraries if why), "")
    may_have_threads = all(cores for _, _, cores in libraries)
    is_on_gpu = not not_on_gpu and options.net_memory != "host"
    words, slots, gpu_slots = net_bytes(plans, has_gpu_slots=is_on_gpu)
    receivers, receiving = 0, ""
    if any(
        may_take_threads(plan, hosts) and not (is_on_gpu and may_be_on_gpu(plan)) for plan in plans
    ):
        receivers, receiving = _threads_to_receive(
            [cores for _, _, cores in libraries], hosts, options.net_threads
        )
    workers.call(CudaRank.reserve, words, slots, gpu_slots, timeout_s=START_S)
    workers.call(CudaRank.join, receivers, hosts, timeout_s=START_S)
    where = " and ".join(name for name, size in (("GPU", gpu_slots), ("host", slots)) if size)

    def refuse(plan: Plan) -> None:
        if options.net_threads and not may_have_threads:
            raise RefusedError(
                f"{library} was started without the thread level multiple: no other thread may"
                " receive",
                "leave out --net-threads",
            )
        if options.net_memory == "device" and (not_on_gpu or not may_be_on_gpu(plan)):
            lines = f"a CPU looks at the lines of {plan.proto}, which it cannot in GPU memory"
            raise RefusedError(not_on_gpu or lines, "use --net-memory host")

    return (
        f"; {library}, messages in {where} memory{receiving and f', {receiving}'}",
        words + slots + gpu_slots,
        refuse,
    )


def _threads_to_receive(
    cores: Sequence[frozenset[int]], hosts: Sequence[str], wanted: int | None
) -> tuple[int, str]:
    """How many threads of a rank receive, and that in words; cores: that each rank may use, several
    the same ones, none if MPI allows no threads.

    >>> (
    ...     _threads_to_receive([frozenset(range(32))] * 2, "aa", None),
    ...     _threads_to_receive([frozenset({0}), frozenset({1})], "aa", None),
    ... )
    ((4, '4 threads receive'), (0, 'no threads receive (1 core a rank)'))
    """
    near = [
        [one for one, at in zip(cores, hosts, strict=True) if at == host] for host in set(hosts)
    ]
    spare = min(len(frozenset().union(*of_host)) // len(of_host) for of_host in near)
    if not all(cores):
        return 0, "no threads receive (MPI's thread level)"
    count = receivers_for(spare) if wanted is None else wanted
    if not count:
        return 0, "no threads receive" + (
            f" ({spare} core{'s' * (spare != 1)} a rank)" if wanted is None else ""
        )
    return count, f"{count} thread{'s receive' if count > 1 else ' receives'}"
