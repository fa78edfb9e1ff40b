"""Which bits ranks may hold differently after an allreduce of numbers that are not exact, of NaN,
infinities and zeros of both signs: docs/explanation/algorithms.md says it.
"""

from contextlib import closing
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from collbench.backends import reference
from collbench.backends.cpu.backend import CpuSession
from collbench.core.case import Case
from collbench.core.dtypes import DtypeName, RedopName, dtype
from collbench.core.pattern import bits
from collbench.launch.local import LocalGroup
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from tests.support.batteries import PAIRS, plan_of, problem
from tests.support.tiers import tiered

SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
ALGOS = [algo for op, algo in PAIRS if op == "allreduce"]
TYPES: tuple[DtypeName, ...] = ("float32", "float64", "float16", "bfloat16", "float8_e5m2")
REDOPS: tuple[RedopName, ...] = ("sum", "prod", "avg", "min", "max")
CASES = list(product(ALGOS, TYPES, REDOPS))
# what ranks themselves reduce, each in its own order: docs/explanation/algorithms.md says it, too
OWN_ORDER = ("oneshot",)
ON_CPUS: list[tuple[DtypeName, RedopName]] = [("float32", "sum"), ("bfloat16", "max")]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def given(plan: Plan, *, special: bool) -> list[np.ndarray]:
    """Inputs of all ranks, a third of them special."""
    what, chance = plan.problem, np.random.default_rng(1)
    elements = what.buffers(0).in_bytes // what.item_bytes
    inputs = chance.normal(size=(plan.n, elements)).astype(np.float32)
    if special:
        inputs = np.where(
            chance.random(inputs.shape) < 0.3, chance.choice(SPECIAL, inputs.shape), inputs
        )
    return list(inputs.astype(dtype(what.dtype).numpy()))


def differ(outputs: list[np.ndarray]) -> bool:
    return any((bits(one) != bits(outputs[0])).any() for one in outputs)


@tiered(("algo", "name", "redop"), CASES, CASES[::21])
def test_ranks_hold_the_same_bits(algo: str, name: DtypeName, redop: RedopName) -> None:
    for n, special in product((2, 3, 4, 5), (False, True)):
        plan = plan_of(problem("allreduce", n, count=257, dtype=name, redop=redop), algo)
        outputs = reference.ReferenceSession().once(plan, given(plan, special=special))
        if algo not in OWN_ORDER or (n == 2 and not special):
            assert not differ(outputs), f"{n} ranks: does each reduce by itself (OWN_ORDER)?"
            continue
        values = [output.astype(np.float64) for output in outputs]
        for one in values:  # all but NaN's bits, the sign of zero, and the last bits of a sum
            assert (np.isnan(one) == np.isnan(values[0])).all()
            near = np.isclose(one, values[0], rtol=0.3 if "8" in name else 0.05, equal_nan=True)
            assert near.mean() > 0.95  # a sum may cancel


@pytest.mark.parametrize("proto", ["simple", "ll", "ll128"])
def test_ranks_on_cpus_hold_the_same_bits(proto: str) -> None:
    """And what the reference has."""
    of = Case(op="allreduce", backend="cpu", proto=proto, ranks=3, size_bytes=4 * 4097)
    plans = [
        resolve(replace(of, algo=algo, dtype=name, redop=redop)).plan
        for algo in ALGOS
        if algo not in (*OWN_ORDER, "hierarchical")
        for name, redop in ON_CPUS
    ]
    with closing(CpuSession(LocalGroup(), plans, hot=True)) as session:
        for plan in plans:
            inputs = given(plan, special=True)
            outputs = session.once(plan, inputs)
            assert not differ(outputs)
            assert not differ([outputs[0], reference.ReferenceSession().once(plan, inputs)[0]])
