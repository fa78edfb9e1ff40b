"""Batches of GPU tests, run as a script under the group that the environment gives, so that a fault
of a GPU ends no other test.

    python3 -m tests.gpu.batch NAME [FIRST]           all GPUs; under a launcher one a rank
    python3 -m tests.gpu.batch compile RANKS ARCH     every kernel into the cache; needs no GPU

Prints a line for each plan before it runs, FAIL and the reason for each that is wrong, and how many
ran. Exits with 0, with 1 after failures, or with 4 if the GPUs cannot go on: then NEXT is the plan
with which to start again.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from collbench.backends import reference
from collbench.backends.base import Batch, GpuOptions, Samples, SessionOptions, TogetherOpener
from collbench.backends.cuda import backend as cuda
from collbench.backends.cuda.together import TOGETHER as CUDA_TOGETHER
from collbench.backends.gpu.rank import DeviceRank
from collbench.backends.mpi import gpu as mpi
from collbench.backends.nccl import backend as nccl
from collbench.backends.nccl.together import TOGETHER as NCCL_TOGETHER
from collbench.backends.torch import backend as torch
from collbench.core.case import Case, Problem
from collbench.core.collectives import collective
from collbench.core.dtypes import dtype
from collbench.core.errors import (
    CollbenchError,
    HangError,
    RankLostError,
    RefusedError,
    ScheduleError,
)
from collbench.core.group import Group
from collbench.core.host import usable_cores
from collbench.core.launcher import launcher
from collbench.core.options import LaunchOrder
from collbench.device.card import device_count
from collbench.device.compile import (
    barrier_source,
    copy_source,
    cubin,
    kernel_source,
    pattern_source,
)
from collbench.launch.local import LocalGroup
from collbench.planning.plan import Plan
from collbench.planning.together import Part, Together
from tests.gpu._peers import (
    MappedMpiGpuRank,
    described,
    may_be_refused,
    mpi_cases,
    nccl_cases,
    nccl_together_jobs,
    torch_cases,
)
from tests.gpu._plans import (
    PROTOS,
    PartJob,
    describe,
    measured_plans,
    net_measured_plans,
    net_plans,
    one_protocol,
    random_plans,
    relay_plans,
    special_plans,
    through_fifos,
    together_jobs,
    uneven_measured_plans,
    uneven_plans,
)
from tests.support.batteries import random_inputs

if TYPE_CHECKING:
    from collbench.core.dtypes import Array

TIMEOUT_S = 4.0  # of a wait on a GPU
HANG_S = 2.0  # the same, where launches wait for each other
ORDERS: tuple[LaunchOrder, ...] = ("grouped", "same")
ALONE = 4  # ranks on a single GPU
SHARED_TIMEOUT_S = 20.0  # where ranks share a GPU
# after this many plans that hang, each of which costs the timeout, the rest of a batch is left out
MAX_HANGS = 5
EXACT: dict[str, Callable[[int], list[Plan]]] = {
    **{proto: partial(one_protocol, proto) for proto in PROTOS},
    "random": random_plans,
    "relay": relay_plans,
    "net": net_plans,
    "uneven": uneven_plans,
}
HOW = {
    "hot, in a graph": (True, GpuOptions(timeout_s=TIMEOUT_S)),
    "past the cache, in a graph": (False, GpuOptions(timeout_s=TIMEOUT_S)),
    "hot, on a stream": (True, GpuOptions(timeout_s=TIMEOUT_S, launch="stream")),
    "past the cache, isolated": (False, GpuOptions(timeout_s=TIMEOUT_S, isolated=True)),
}


def say(text: str) -> None:
    """Print a line at once, so that the reader sees where a crash happened."""
    print(text, flush=True)


def differs(plan: Plan, ours: Sequence["Array"], wanted: Sequence["Array"]) -> str:
    """Where the bits of a wanted output differ first, or an empty text."""
    for rank in range(plan.n):
        if (
            not collective(plan.problem.op).wants(plan.n, plan.problem.root, rank)
            or ours[rank].tobytes() == wanted[rank].tobytes()
        ):
            continue
        if len(ours[rank]) != len(wanted[rank]):
            return f"rank {rank} has {len(ours[rank])} elements, not {len(wanted[rank])}"
        width = f"u{ours[rank].itemsize}"
        wrong = (ours[rank].view(width) != wanted[rank].view(width)).nonzero()[0]
        at = int(wrong[0])
        return (
            f"rank {rank}: {len(wrong)} of {len(ours[rank])} elements differ, first {at}: got"
            f" {ours[rank][at]}, the reference {wanted[rank][at]}"
        )
    return ""


def options_for(n: int) -> GpuOptions:
    """A GPU a rank. If there are too few, neighbours share one: this is correct but slow."""
    count = device_count()
    if n <= count:
        return GpuOptions(timeout_s=TIMEOUT_S)
    return GpuOptions(
        timeout_s=SHARED_TIMEOUT_S, gpus=tuple(rank * count // n for rank in range(n))
    )


def sources_of(plans: Sequence[Plan]) -> int:
    """How many different kernels the plans need."""
    return len(
        {kernel_source(plan, rank) for plan in plans for rank in range(len(plan.schedule.programs))}
    )


def run_exact(plans: Sequence[Plan], group: Group, first: int) -> int:
    """Each plan once on random inexact inputs: the outputs of cuda must equal those of the
    reference bit for bit.
    """
    if first >= len(plans):
        say("SUMMARY 0 plans left")
        return 0
    start = time.monotonic()
    # compiles while the reference works
    session = cuda.CudaSession(group, plans[first:], hot=True, options=options_for(plans[0].n))
    inputs = [random_inputs(plan.problem, number) for number, plan in enumerate(plans)]
    wanted = [
        expected(plan, given) for plan, given in zip(plans[first:], inputs[first:], strict=True)
    ]
    ready = time.monotonic()
    failures = hangs = ran = 0
    for number, plan in enumerate(plans[first:], first):
        say(f"plan {number}: {describe(plan)}")
        try:
            why = differs(plan, session.once(plan, inputs[number]), wanted[number - first])
            ran += 1
        except (HangError, ScheduleError) as error:
            if isinstance(error, RankLostError):
                raise
            why, hangs = error.message, hangs + isinstance(error, HangError)
        except CollbenchError as error:
            say(f"FAIL {describe(plan)}: {error.message}")
            say(f"NEXT {number + 1}")
            raise
        if why:
            failures += 1
            say(f"FAIL {describe(plan)}: {why}")
        if hangs == MAX_HANGS:
            say(f"FAIL {len(plans) - number - 1} plans left out: {hangs} hung")
            break
    session.close()
    say(
        f"SUMMARY {ran} plans, {sources_of(plans)} kernels, {group.kind} group of {plans[0].n}:"
        f" {failures} wrong, {ready - start:.1f} s until all was ready,"
        f" {time.monotonic() - ready:.1f} s to run"
    )
    return 1 if failures else 0


def expected(plan: Plan, inputs: Sequence["Array"]) -> list["Array"]:
    """The outputs of the reference."""
    return reference.ReferenceSession().once(through_fifos(plan), inputs)


def why_unsound(samples: Samples, n: int) -> str:
    """The error in the samples of a repeat, or an empty text."""
    if samples.wrong:
        wrong = samples.wrong[0]
        return (
            f"rank {wrong.rank} has {wrong.count} wrong elements, first {wrong.index}: got"
            f" {wrong.got}, expected {wrong.wanted}"
        )
    if len(samples.seconds) != n or not all(0 < seconds < 1 for seconds in samples.seconds):
        return f"seconds a launch: {samples.seconds}"
    return ""


class Tally:
    """What a batch of a group of n has tried so far."""

    def __init__(self, group: Group, n: int) -> None:
        self.of, self.failures, self.start = f"{group.kind} group of {n}", 0, time.monotonic()

    def report(self, what: str, why: str) -> None:
        """Print what was tried and why it failed."""
        say(f"FAIL {what}: {why}" if why else f"right: {what}")
        self.failures += bool(why)

    def end(self, tried: str, more: str = "") -> int:
        """Print how many failed; returns the exit code."""
        took = f"{time.monotonic() - self.start:.1f} s"
        say(f"SUMMARY {tried}, {self.of}: {self.failures} wrong{more}, {took}")
        return 1 if self.failures else 0


def run_measured(group: Group, n: int, make: Callable[[int], list[Plan]] = measured_plans) -> int:
    """The measuring path with its checks, in every way to launch."""
    plans, tally = make(n), Tally(group, n)
    shared = options_for(n)
    for how, (hot, options) in HOW.items():
        options = replace(options, gpus=shared.gpus, timeout_s=shared.timeout_s)
        session = cuda.CudaSession(group, plans, hot=hot, options=options)
        for number, plan in enumerate(plans):
            try:
                samples = session.run(plan, Batch(iterations=6, aggregate=1 + number % 2))
            except ScheduleError as error:
                if n <= device_count() or "can be resident" not in error.message:
                    raise
                say(f"left out: {describe(plan)}: {error.message}")  # ranks share the SMs
                continue
            tally.report(
                f"{how}, {1e6 * max(samples.seconds):.1f} us: {describe(plan)}",
                why_unsound(samples, n),
            )
        session.close()
    return tally.end(f"{len(plans)} plans in {len(HOW)} ways, {sources_of(plans)} kernels")


def run_together(group: Group, n: int) -> int:
    """Several plans at once, alone and together, in the ways of launching by turns; at last in an
    order that deadlocks, whose end names a part.
    """
    return run_at_once(group, n, CUDA_TOGETHER, together_jobs(n), " waited for ")


def run_nccl_together(group: Group, n: int) -> int:
    """As run_together(), of NCCL's collectives."""
    if why := nccl.BACKEND.why_not(group):
        say(f"SKIP {why}")
        return 0
    return run_at_once(group, n, NCCL_TOGETHER, nccl_together_jobs(n), " has not finished")


def run_at_once(
    group: Group,
    n: int,
    opener: TogetherOpener[PartJob],
    sessions: Sequence[Sequence[Together[PartJob]]],
    hang: str,
) -> int:
    """Every job of every session, grouped and one after the other. hang: what an error says of an
    order that deadlocks.
    """
    tally, ran, shared = Tally(group, n), 0, options_for(n)
    for number, jobs in enumerate(sessions):
        how, (hot, options) = list(HOW.items())[number % len(HOW)]
        options = replace(options, gpus=shared.gpus, timeout_s=shared.timeout_s)
        session = opener.open(group, jobs, SessionOptions(hot=hot, gpu=options))
        for job in jobs:
            for order in ORDERS[: 1 + any(order[1:] for order in job.launches.orders)]:
                what = f"{how}, {order}, {' beside '.join(map(described_part, job.parts))}"
                say(what)
                try:
                    batch = Batch(iterations=6, aggregate=1 + number % 2)
                    samples = session.run(replace(job, order=order), batch)
                except ScheduleError as error:
                    if n <= device_count() or "resident" not in error.message:
                        raise
                    say(f"left out: {error.message}")  # ranks share the SMs
                    continue
                why = why_unsound(samples, n)
                if not why and not 0 < samples.alone_s < 1:
                    why = f"seconds alone: {samples.alone_s}"
                over_alone = max(samples.seconds) / (samples.alone_s or 1)
                took = f"{1e6 * max(samples.seconds):.1f} us, {over_alone:.2f} x alone"
                tally.report(f"{took}: {what}", why)
                ran += 1
        version = session.version
        session.close()
    tally.report("an order that deadlocks", why_no_deadlock(group, n, opener, sessions[0][0], hang))
    by = f"by {opener.name} ({version}), {len(sessions)} sessions"
    return tally.end(f"{ran} launches of several collectives {by}")


def described_part(part: Part[Plan | Case]) -> str:
    """A part in a few words."""
    return f"{part.name} on {part.job.buffers}" if isinstance(part.job, Case) else part.name


def why_no_deadlock(
    group: Group, n: int, opener: TogetherOpener[PartJob], job: Together[PartJob], hang: str
) -> str:
    """Two collectives that ranks launch in different orders must end at the deadline, and the error
    must say why: what is wrong with it, or an empty text.
    """
    job = replace(job, order="crossed")
    options = replace(options_for(n), timeout_s=HANG_S)
    session = opener.open(group, [job], SessionOptions(hot=True, gpu=options))
    try:
        session.run(job, Batch(iterations=2))
    except HangError as error:
        is_explained = all(words in error.message for words in (" of ranks ", "before", hang))
        say(f"as it should: {error.message}")
        return "" if is_explained else error.message
    finally:
        session.close()
    return "it did not"


def run_pretended(group: Group, n: int) -> int:
    """Ranks that access each other's memory only inside a half, as if each half were a host."""
    group.hosts = [f"pretended {2 * rank // n}" for rank in range(n)]
    return run_exact([plan for plan in net_plans(n) if plan.transport == "p2p+net"], group, 0)


def run_spoiled(group: Group, n: int) -> int:
    """One element of one rank's output is overwritten after the kernel: the check must find exactly
    that one.
    """
    rank, index, tally = n - 1, 4097, Tally(group, n)
    plans = [
        plan
        for plan in measured_plans(n)
        if not plan.problem.in_place and has_element(plan, rank, index)
    ]
    session = cuda.CudaSession(group, plans, hot=True, options=GpuOptions(timeout_s=TIMEOUT_S))
    spoil(rank, index)
    for plan in plans:
        found = session.run(plan, Batch(iterations=4)).wrong
        is_it = (
            len(found) == 1
            and (found[0].rank, found[0].count, found[0].index) == (rank, 1, index)
            and found[0].got != found[0].wanted
        )
        tally.report(
            describe(plan),
            "" if is_it else f"found {found} instead of element {index} of rank {rank}",
        )
    session.close()
    return tally.end(f"{len(plans)} plans with a wrong element")


def has_element(plan: Plan, rank: int, index: int) -> bool:
    """Whether that element of the rank's output is one that the collective defines."""
    count = plan.problem.block_count
    return any(
        want.out_block == index // count
        for want in collective(plan.problem.op).wants(plan.n, plan.problem.root, rank)
    )


def spoil(rank: int, index: int) -> None:
    """From now on, invert that element before a rank of this process compares."""
    compare = DeviceRank.compare

    def spoiled(lane: DeviceRank, problem: Problem, sets: range) -> object:
        if lane.rank == rank:
            out, _ = lane.buffer(problem, "out", sets[0])
            at = out + index * problem.item_bytes
            lane.card.upload(
                at, bytes(byte ^ 0xFF for byte in lane.card.download(at, problem.item_bytes))
            )
        return compare(lane, problem, sets)

    DeviceRank.compare = spoiled  # type: ignore[method-assign, assignment]


def run_nccl(group: Group, n: int) -> int:
    """NCCL's own collectives, every one with every type, and every type with every reduction, on
    each kind of user buffers, by the same checks.
    """
    if why := nccl.BACKEND.why_not(group):
        say(f"SKIP {why}")
        return 0
    cases, tally = nccl_cases(n), Tally(group, n)
    # the second as if on several hosts: NCCL itself brings the ranks together
    for options in (GpuOptions(), GpuOptions(is_spread=True)):
        session = nccl.NcclSession(group, cases, hot=True, options=options)
        for case in cases if not options.is_spread else cases[:4]:
            tally.report(str(case), why_unsound(session.run(case, Batch(iterations=4)), n))
        session.close()
    return tally.end(f"{len(cases)} cases, NCCL by {session.version}")


def run_torch(group: Group, n: int) -> int:
    """PyTorch's collectives as run_nccl() tries NCCL's, and its allreduces in symmetric memory; in
    graphs, and without a launcher some isolated. What PyTorch refuses is printed, and a failure
    where it need not be refused.
    """
    if why := torch.BACKEND.why_not(group):
        say(f"SKIP {why}")
        return 0
    cases, tally, refused = torch_cases(n), Tally(group, n), 0
    few = [case for case in cases if case.algo != "library"] + cases[:12]
    ways = [(GpuOptions(timeout_s=TIMEOUT_S), cases)]
    if group.kind == "local":
        ways.append((GpuOptions(timeout_s=TIMEOUT_S, isolated=True), few))
    for options, tried in ways:
        session = torch.TorchSession(group, tried, hot=True, options=options)
        say(f"open after {time.monotonic() - tally.start:.1f} s: {session.version}")
        for case in tried:
            how = f"isolated {options.isolated}, {described(case)}"
            try:
                samples = session.run(case, Batch(iterations=4, single_launches=3))
                tally.report(how, why_unsound(samples, n))
            except RefusedError as error:
                refused += 1
                tally.report(how, "" if may_be_refused(case) else error.message)
                say(f"refused: {error.message}")
        session.close()
    count = sum(len(tried) for _, tried in ways)
    return tally.end(f"{count} cases, PyTorch by {session.version}", f", {refused} refused")


def run_mpi_on_gpus(group: Group, n: int) -> int:
    """MPI's collectives with buffers for GPUs: in GPU memory, or, for an MPI that does not take it,
    in host memory that GPUs map, so that all but MPI's own copies is as on GPU memory.
    """
    mpi.MpiGpuRank = MappedMpiGpuRank  # type: ignore[misc]
    cases, tally = mpi_cases(n), Tally(group, n)
    session = mpi.MpiGpuSession(group, cases, hot=False, options=GpuOptions(timeout_s=TIMEOUT_S))
    for case in cases:
        samples = session.run(case, Batch(iterations=4, single_launches=3))
        tally.report(described(case), why_unsound(samples, n))
    session.close()
    return tally.end(f"{len(cases)} cases, {session.device}, {session.version}")


def special_inputs(what: Problem, seed: int) -> list["Array"]:
    """Bits of any value, among them NaNs, infinities and zeros of both signs, and the marker of
    sentinel; the first rank has nothing but the marker.
    """
    rng, width = np.random.default_rng(seed), f"u{what.item_bytes}"
    kind = dtype(what.dtype).numpy()
    made: list[Array] = []
    for given in random_inputs(what, seed):
        few = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]).astype(kind)
        ones = np.full(1, -1, f"i{what.item_bytes}").view(kind)
        drawn = rng.integers(0, 1 << 8 * what.item_bytes, given.size, f"<{width}").view(kind)
        kinds = np.stack([given, drawn, rng.choice(few, given.size), np.repeat(ones, given.size)])
        made.append(kinds[rng.integers(0, 4, given.size) if made else 3, np.arange(given.size)])
    return made


def run_special(group: Group, n: int) -> int:
    """Sentinel on special_inputs(): the reference's bits, but that any NaN stands for another."""
    plans, tally = special_plans(n), Tally(group, n)
    session = cuda.CudaSession(group, plans, hot=True, options=options_for(n))

    def plain(outputs: Sequence["Array"]) -> list["Array"]:
        with np.errstate(all="ignore"):
            return [
                np.where(np.isnan(one.astype("f4")), np.nan, one.astype("f4")) for one in outputs
            ]

    for number, plan in enumerate(plans):
        inputs = special_inputs(plan.problem, number)
        with np.errstate(all="ignore"):
            wanted = expected(plan, inputs)
        for _ in range(3):
            why = differs(plan, plain(session.once(plan, inputs)), plain(wanted))
            tally.report(describe(plan), why)
    session.close()
    return tally.end(f"{len(plans)} plans of special values")


OTHER: dict[str, Callable[[Group, int], int]] = {
    "measured": run_measured,
    "special": run_special,
    "spoiled": run_spoiled,
    "together": run_together,
    "nccl": run_nccl,
    "nccl-together": run_nccl_together,
    "torch": run_torch,
    "mpi": run_mpi_on_gpus,
    "net-measured": partial(run_measured, make=net_measured_plans),
    "uneven-measured": partial(run_measured, make=uneven_measured_plans),
    "net-hosts": run_pretended,
}


def compile_all(n: int, arch: int) -> int:
    """Compile every kernel of every batch."""
    measured = measured_plans, net_measured_plans, uneven_measured_plans, special_plans
    plans = [plan for make in (*EXACT.values(), *measured) for plan in make(n)]
    plans += [part.job for jobs in together_jobs(n) for job in jobs for part in job.parts]
    sources = dict.fromkeys(
        kernel_source(plan, rank) for plan in plans for rank in range(len(plan.schedule.programs))
    )
    sources |= dict.fromkeys([barrier_source(), copy_source(), *map(pattern_source, (1, 2, 4, 8))])
    start = time.monotonic()
    with ThreadPoolExecutor(usable_cores()) as pool:
        sizes = [len(made) for made in pool.map(lambda source: cubin(source, arch), sources)]
    say(
        f"SUMMARY {len(plans)} plans, {len(sizes)} kernels, {sum(sizes) >> 20}M of machine code,"
        f" {time.monotonic() - start:.1f} s"
    )
    return 0


def main(name: str, *more: str) -> int:
    """Run a batch on this process's group; returns the exit code."""
    if name == "compile":
        return compile_all(int(more[0]), int(more[1]))
    started = launcher()
    if started is None:
        count = device_count()
        return drive(LocalGroup(), name, count if count > 1 else ALONE, *more)
    from collbench.launch.mpi import MpiGroup

    group = MpiGroup(started)
    if group.rank == 0:
        return drive(group, name, group.ranks, *more)
    if name == "spoiled":
        spoil(group.ranks - 1, 4097)
    return group.serve()


def drive(group: Group, name: str, n: int, first: str = "0") -> int:
    """The part of rank 0. An error outside of a plan ends every rank at once, because a failed GPU
    does not respond any more.
    """
    try:
        code = (
            run_exact(EXACT[name](n), group, int(first)) if name in EXACT else OTHER[name](group, n)
        )
    except CollbenchError as error:
        say(f"FAIL {name}: {error.message}")
        if group.kind == "mpi":
            group.abort(4)
        os._exit(4)
    group.close(code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
