"""Configurations to fit the constants of a machine to, or to judge them by: drawn, so that what a
price is made of differs between them in many ways.
"""

import random
from collections.abc import Callable

from collbench.core.case import Case
from collbench.core.collectives import OPS
from collbench.core.errors import UsageError
from collbench.planning.limits import Limits
from collbench.planning.planner import resolve
from collbench.planning.price.constants import KIND_OF
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import algorithms_of

LEAST_BYTES, MOST_BYTES = 1 << 7, 1 << 25
_MOST_ACTIONS = 20_000  # of a rank: more only take long
_PROTOCOLS = ("simple", *(name for name in PROTOCOLS if name not in KIND_OF))
_MOST_DRAWS = 50  # for each case that is wanted
# 0: as the planner chooses.
_CHUNKS = (0, 0, 0, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
_SLICES, _SLOTS = (0, 0, 1, 2, 4), (0, 0, 2, 4, 8)
_CHANNELS = {"cpu": (0, 0, 1, 2, 4), "cuda": (0, 0, 1, 4, 16, 32)}


def drawn_cases(
    backend: str,
    ranks: Callable[[random.Random], int],
    count: int,
    *,
    limits: Limits | None = None,
    seed: int = 1,
    most_bytes: int = MOST_BYTES,
) -> list[Case]:
    """So many cases that can run there, or fewer if few can; always the same for a seed.

    >>> cases = drawn_cases("cpu", lambda drawn: 2, 8)
    >>> len(cases), {case.ranks for case in cases}
    (8, {2})
    """
    drawn = random.Random(seed)
    cases: dict[Case, None] = {}
    for _ in range(_MOST_DRAWS * count):
        if len(cases) == count:
            break
        op, proto = drawn.choice(OPS), drawn.choice(_PROTOCOLS)
        has_flags = not PROTOCOLS.load(proto).HAS_SLICES  # in its lines: they say how it sends
        case = Case(
            op=op,
            backend=backend,
            ranks=ranks(drawn),
            size_bytes=int(LEAST_BYTES * (most_bytes / LEAST_BYTES) ** drawn.random()) // 4 * 4,
            algo=drawn.choice(algorithms_of(op, has_hosts=False)),
            proto=proto,
            direct="auto" if has_flags else drawn.choice(("auto", "on", "off")),
            channels=drawn.choice(_CHANNELS[backend]),
            chunk=drawn.choice(_CHUNKS),
            slices=0 if has_flags else drawn.choice(_SLICES),
            slots=drawn.choice(_SLOTS),
        ).rounded()
        try:
            if case.why_senseless() or resolve(case, limits).plan.action_count() > _MOST_ACTIONS:
                continue
        except UsageError:
            continue  # these knobs do not go together
        cases[case] = None
    return list(cases)
