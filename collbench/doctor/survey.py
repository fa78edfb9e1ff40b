"""A collective without each rank in turn: a slow GPU is the one whose absence heals."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from collbench.bench.points import plan_points
from collbench.bench.runner import Measurement
from collbench.core.case import Case
from collbench.core.group import Group
from collbench.core.options import Settings
from collbench.doctor.check import LeftOut

SIZE_BYTES = 64 << 20
_ROUNDS = 7


def leave_out(
    group: Group, backend: str, gpus: Sequence[int], settings: Settings
) -> tuple[LeftOut, ...]:
    """Bus bandwidths of an allreduce of all GPUs (by CUDA's numbers) and without each of them, in
    turns. Needs three GPUs of this host, and a group without a launcher.
    """
    subsets: list[tuple[int | None, tuple[int, ...]]] = [(None, tuple(gpus))]
    subsets += [(gpu, tuple(one for one in gpus if one != gpu)) for gpu in gpus]
    rates: dict[int | None, list[float]] = {missing: [] for missing, _ in subsets}
    with ExitStack() as stack:
        opened = []
        for missing, some in subsets:
            case = Case(op="allreduce", backend=backend, ranks=len(some), size_bytes=SIZE_BYTES)
            points = plan_points([case], group, settings.max_memory)
            own = replace(settings, repeats=1, gpus=some if backend == "cuda" else ())
            measurement = Measurement(points, group, own)
            stack.callback(measurement.close)
            measurement.open()
            opened.append((missing, len(some), measurement))
        for number in range(_ROUNDS + 1):
            for missing, ranks, measurement in opened:
                (seconds,) = measurement.once()
                if number:  # the first launches are slow
                    rates[missing].append(2 * (ranks - 1) / ranks * SIZE_BYTES / seconds / 1e9)
    return tuple(LeftOut(gpu=missing, busbw_gbs=tuple(some)) for missing, some in rates.items())
