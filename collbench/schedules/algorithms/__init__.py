"""The algorithms: one a file, found by the file's name."""

from collbench.core.registry import Family

FAMILY = Family(__name__, __path__, "algorithm")


def needs_hosts(name: str) -> bool:
    """Whether an algorithm is for several hosts only, which its module says by NEEDS_HOSTS."""
    return getattr(FAMILY.load(name), "NEEDS_HOSTS", False)
