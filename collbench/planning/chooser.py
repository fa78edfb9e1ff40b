"""The chooser: what a case takes that leaves its algorithm or its protocol open, and what decided.

    choose(case, limits, links) -> Chosen

First what was asked for. Then what a tuning file says that was measured on such a machine. Then,
where the links are known, the lowest price: of every algorithm by every protocol that is open and,
over hosts, of some channels, because no tuning file was measured there. Where nothing of this says
anything, the tuning file of another machine does. A described machine runs nothing, so no tuning
file was measured on it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

from collbench.core.case import Case
from collbench.core.errors import RefusedError, ScheduleError, UsageError
from collbench.planning.limits import Limits
from collbench.planning.links import RankLinks
from collbench.planning.plan import Plan
from collbench.planning.planner import GPU_BACKENDS, machine_of, problem_of, resolve, tuning_for
from collbench.planning.price.constants import KIND_OF
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import algorithms_of, is_measured
from collbench.planning.tuning import Origin, Value, Values, tuning_without

How = Literal["asked", "tuned", "priced"]
_MANY_RANKS = 16
# What is tried where messages go between hosts: the 31 tracks of a tree take four at most.
_CHANNELS_OVER_HOSTS, _CHUNK_OVER_HOSTS = (4, 16, 32), 1 << 16


class Chosen(NamedTuple):
    """A case with nothing left to decide, its plan, what decided, and where that comes from."""

    case: Case
    plan: Plan
    how: How
    origin: Origin


def choose(case: Case, limits: Limits, links: RankLinks | None = None) -> Chosen:
    """Decide what the case leaves open. limits: of its backend, with the hosts of the ranks. Raises
    ScheduleError if it cannot be done.

    >>> choose(Case(op="allreduce", backend="cpu", ranks=4, size_bytes=1 << 20), Limits()).how
    'tuned'
    """
    is_open = "auto" in (case.algo, case.proto)
    name = priced_by(case, limits, links)
    decided = cheapest(case, limits, links) if name and links is not None else case
    is_priced = is_open and "auto" not in (decided.algo, decided.proto)
    own = limits_of(decided, limits, links)
    case, plan = resolve(decided, own)
    return Chosen(
        case,
        plan,
        "priced" if is_priced else "tuned" if is_open else "asked",
        tuning_for(decided, own).origin._replace(priced_by=name),
    )


@lru_cache(maxsize=512)
def choice_of_problem(case: Case, limits: Limits, links: RankLinks | None = None) -> Case | None:
    """What `auto` takes for the problem of a case, with nothing left to decide; None if nothing can
    run. Of many ranks only where everything was left open: every algorithm has to be proved.
    """
    problem = problem_of(case)
    if case.algo != "auto" and case.ranks > _MANY_RANKS and priced_by(problem, limits, links):
        return None
    try:
        return choose(problem, limits, links).case
    except ScheduleError:
        return None


def limits_of(case: Case, limits: Limits, links: RankLinks | None) -> Limits:
    """The limits with what the links say of the case's ranks: what joins them, and the orders for
    its algorithm. A described machine has its own hosts and GPUs.
    """
    if links is None:
        return limits
    if links.is_described:
        limits = links.described(limits, case.ranks)
    return replace(limits, joined=links.joined(case.ranks), orders=links.orders_for(case))


def priced_by(
    case: Case, limits: Limits, links: RankLinks | None = None, left_out: str = ""
) -> str:
    """The machine by whose constants prices decide what a case leaves open; empty where they do
    not. left_out: the user's tuning file that is not asked.
    """
    if links is None or not (links.is_described or case.backend in GPU_BACKENDS):
        return ""
    if not links.is_described:
        here = replace(limits, joined=links.joined(case.ranks))
        tuning = tuning_for(case, here)
        if left_out:
            tuning = tuning_without(machine_of(case.backend, here), case.ranks, left_out)
        if is_measured(case, here, tuning):
            return ""
    return links.costs.name


def row_of(case: Case, limits: Limits, links: RankLinks | None, left_out: str = "") -> Values:
    """What prices choose of a case that leaves all open, as a row of a tuning file; none where
    tuning files decide.
    """
    if links is None or not priced_by(case, limits, links, left_out):
        return {}
    found = cheapest(case, limits, links)
    if "auto" in (found.algo, found.proto):
        return {}
    row: dict[str, Value] = {"algo": found.algo, "proto": found.proto}
    if found.channels:
        row |= {"channels": found.channels, "channel_bytes": 1}
    return row | ({"chunk": found.chunk} if found.chunk else {})


@lru_cache(maxsize=4096)
def cheapest(case: Case, limits: Limits, links: RankLinks) -> Case:
    """The case with the algorithm, the protocol and, over hosts, the channels of the lowest price;
    unchanged, which leaves the choice to tuning files, where nothing has a price.
    """
    cases = {plan: candidate for candidate, plan in planned(case, limits, links)}
    rated = []
    for plan in cases:
        with suppress(RefusedError):  # the links are not known
            rated.append((max(links.busy(plan).values()), plan))
    found = least(rated, links.price)
    return case if found is None else cases[found[1]]


def planned(case: Case, limits: Limits, links: RankLinks) -> Iterator[tuple[Case, Plan]]:
    """The candidates that can run, with their plans."""
    for candidate in _candidates(case, limits, links):
        with suppress(UsageError):
            yield candidate, resolve(candidate, limits_of(candidate, limits, links)).plan


def least(
    rated: Sequence[tuple[float, Plan]], price: Callable[[Plan], float]
) -> tuple[float, Plan] | None:
    """The plan of the lowest price, the first one of several, and its price. rated: each with what
    it cannot be below, so that many need no price.
    """
    best: tuple[float, int] | None = None
    for place in sorted(range(len(rated)), key=lambda one: rated[one][0]):
        if best is not None and rated[place][0] > best[0]:
            break
        found = price(rated[place][1]), place
        best = found if best is None else min(best, found)
    return None if best is None else (best[0], rated[best[1]][1])


def _candidates(case: Case, limits: Limits, links: RankLinks) -> Iterator[Case]:
    """The case with every algorithm, protocol and, over hosts, knobs that it leaves open."""
    algos = algorithms_of(case.op) if case.algo == "auto" else (case.algo,)
    protos = (case.proto,) if case.proto != "auto" else _protocols(case, limits, links)
    is_spread = bool(links.hosts(case.ranks)) and not case.channels and not case.chunk
    for algo, proto in product(algos, protos):
        one = replace(case, algo=algo, proto=proto)
        if is_spread and proto == "simple":
            for channels in _CHANNELS_OVER_HOSTS:
                yield replace(one, channels=channels, chunk=_CHUNK_OVER_HOSTS)
        else:
            yield one


def _protocols(case: Case, limits: Limits, links: RankLinks) -> tuple[str, ...]:
    """Those that are safe over these links, and have constants of their own."""
    here = links.described(limits, case.ranks) if links.is_described else limits
    here = replace(here, joined=links.joined(case.ranks))
    return tuple(one for one in PROTOCOLS.names() if one not in KIND_OF and here.is_safe(one))
