"""The constants of NCCL's prices, in profiles/nccl/hosts.toml, each with its source."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from collbench.core import catalog
from collbench.planning.price.errors import PriceErrors

PROTOCOLS = ("ll", "ll128", "simple")
Three = tuple[float, float, float]  # of each protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """base_us, hop_us: by algorithm, the latter by way first. ll_gbs: by architecture, on 1, 2 and
    more hosts. tree_factors: by protocol and log2(bytes / 64). fitted: by name, see the file.
    """

    base_us: Mapping[str, Three]
    hop_us: Mapping[str, Mapping[str, Three]]
    nvls_us: Mapping[str, float]
    ll_gbs: Mapping[str, Three]
    tree_factors: Mapping[str, tuple[float, ...]]
    fitted: Mapping[str, float]
    errors: tuple[PriceErrors, ...]


@lru_cache(maxsize=1)
def constants() -> Constants:
    """Those of the shipped file.

    >>> constants().base_us["ring"]
    (6.6, 14.0, 8.4)
    """
    data: dict[str, Any] = catalog.load("nccl", "hosts")  # Any: values of TOML
    return Constants(
        base_us={algo: tuple(three) for algo, three in data["base_us"].items()},
        hop_us={
            way: {algo: tuple(three) for algo, three in own.items()}
            for way, own in data["hop_us"].items()
        },
        nvls_us=data["nvls_us"],
        ll_gbs={arch: tuple(three) for arch, three in data["ll_gbs"].items()},
        tree_factors={proto: tuple(all_) for proto, all_ in data["tree_factors"].items()},
        fitted={
            key: value for key, value in data["fitted"].items() if isinstance(value, int | float)
        },
        errors=tuple(PriceErrors(**one) for one in data.get("errors", ())),
    )
