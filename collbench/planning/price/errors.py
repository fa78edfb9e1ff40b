"""How far prices were from what was measured where the constants did not know it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from collbench.core import catalog
from collbench.planning.price.constants import REFERENCE, is_fitted_to


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceErrors:
    """Measured over predicted time of rows: nine of ten are between low and high.

    scope: of NCCL on one "host", on several "hosts", or on "racks" that are NVLink domains; of our
    own engine with constants that were "fitted" to the machine, or "borrowed" from another one.
    from_bytes: the least size of the range, which ends at the next one. rows: how many gave it.
    """

    scope: str
    from_bytes: int
    low: float
    high: float
    rows: int


def errors_of(known: Sequence[PriceErrors], scope: str, size_bytes: int) -> PriceErrors | None:
    """The errors of the range of sizes in a scope; None where no row gave any.

    >>> errors_of(own_errors(), "fitted", 8) is not None, errors_of(own_errors(), "host", 8)
    (True, None)
    """
    there = [one for one in known if one.scope == scope and one.from_bytes <= size_bytes]
    return max(there, key=lambda one: one.from_bytes, default=None)


@lru_cache(maxsize=1)
def own_errors() -> tuple[PriceErrors, ...]:
    """Those of our own engine, of profiles/errors/model.toml."""
    return tuple(PriceErrors(**one) for one in catalog.load("errors", "model")["errors"])


def own_scope(machine: str, models: Sequence[str]) -> str | None:
    """The scope of a machine by its name and the models of its GPUs; None for GPUs of which no row
    was measured.

    >>> own_scope("h200x4-vm", ["NVIDIA H200"]), own_scope("hgx-h100", ["H100"])
    ('fitted', 'borrowed')
    >>> own_scope("dgx-1", ["Tesla V100"])
    """
    if machine == REFERENCE:
        return "fitted"
    return "borrowed" if models and all(map(is_fitted_to, models)) else None
