"""What kernels that gave up have left: which rank, channel, track and round waited for whom."""

import struct
from collections.abc import Sequence

from collbench.backends.gpu.rank import DeviceRank
from collbench.core.errors import HangError
from collbench.device.layout import REPORT_BYTES, REPORTS_AT
from collbench.device.program import SIGNAL_NAMES, waiters
from collbench.planning.plan import Plan

REPORT = struct.Struct("<8I2Q")
_WAITED_FOR = {
    "data": "data from rank {}",
    "room": "rank {} to read what it was sent",
    "back": "rank {} to finish a pull",
    "ready": "rank {} to begin the launch",
}


def diagnosis(
    gpu: DeviceRank, plan: Plan, ranks: Sequence[int] = (), part: str = ""
) -> HangError | None:
    """The report of the CTA with the least progress, or None. In a cyclic wait any CTA may time
    out first, so all of them report.

    ranks: those of all that run the plan, if they are only some. part: the name of what they run.
    """
    ranks = ranks or range(plan.n)
    data = gpu.card.download(gpu.arena + REPORTS_AT, waiters(plan) * REPORT_BYTES)
    program = plan.schedule.program(gpu.rank)
    reports = sorted(
        (done, round_index, *rest)
        for is_set, done, round_index, *rest in REPORT.iter_unpack(data)
        if is_set
    )
    if not reports:
        return None
    done, round_index, signal, rank, channel, track, peer, wanted, seen = reports[0]
    where = (
        f"round {round_index}"
        if round_index < len(program[track].rounds)
        else "the end of the launch"
    )
    peer = ranks[peer]
    at = f"{f'{part}, ' if part else ''}channel {channel}, track {program[track].name}, {where}"
    more = f" (and {len(reports) - 1} more CTAs)" if len(reports) > 1 else ""
    return HangError(
        f"rank {ranks[rank]} ({at}) waited for"
        f" {_WAITED_FOR[SIGNAL_NAMES[signal]].format(peer)}: wanted {wanted}, saw {seen}{more}",
        suspect=((done, round_index), peer),
    )
