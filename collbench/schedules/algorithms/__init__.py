"""The algorithms: one a file, found by the file's name."""

from collbench.core.collectives import collective
from collbench.core.registry import Family

FAMILY = Family(__name__, __path__, "algorithm")


def needs_hosts(name: str) -> bool:
    """Whether an algorithm is for several hosts only, which its module says by NEEDS_HOSTS."""
    return getattr(FAMILY.load(name), "NEEDS_HOSTS", False)


def algorithms_of(op: str, *, has_hosts: bool = True) -> tuple[str, ...]:
    """The registered algorithms that serve a collective; without several hosts, those that need
    none.
    """
    return tuple(
        name
        for name in FAMILY
        if collective(op).even in FAMILY.load(name).SERVES and (has_hosts or not needs_hosts(name))
    )
