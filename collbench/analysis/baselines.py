"""Whether rates are normal: curves of a file against those of a reference, shipped or given, and
the sizes at which they fall behind.

A curve is one backend's best rate at each size of one collective, ranks, placement and way of
measuring (launches alone, say), so that only what both files have is compared: NCCL's own choice
with NCCL's, our kernels with ours. Between two sizes of the reference the lower of their rates
counts, because a library changes its protocol somewhere between them, or the time of the larger,
where that asks for more: no size takes longer than a larger one. Outside of its sizes nothing
counts.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collbench.analysis.load import ResultFile, load
from collbench.analysis.rows import conditions_of
from collbench.spec.peers import OWN_CHOICE
from collbench.util import catalog
from collbench.util.errors import UsageError, unknown

if TYPE_CHECKING:
    import pandas as pd

# of the reference's rate: below it a size counts as behind; machines of one kind differ by less
BEHIND_SHARE = 0.9
_GPU_MODEL = re.compile(
    r"\b(GB200|GB300|B200|B300|H200|H100|H800|A100|A800|V100|P100|K40|L40S?|RTX \d{4}\w*)\b",
    re.IGNORECASE,
)

_FORCED = ("algo", "proto", "channels", "buffsize")  # what a library can be forced to
_OWN_VALUES = [OWN_CHOICE[name] for name in _FORCED]


class CurveKey(NamedTuple):
    """What a curve is of; buffers: the user's (see spec/knobs.py)."""

    op: str
    backend: str
    buffers: str
    ranks: int
    placement: str
    conditions: tuple[str, ...]


RateCurve = dict[int, float]  # size in bytes -> GB/s of bus bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSpan:
    """Neighbouring sizes with one verdict, and the range of their shares of a rate."""

    first: int
    last: int
    is_behind: bool
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveVerdict:
    """One curve against the reference's."""

    key: CurveKey
    spans: tuple[RateSpan, ...]

    @property
    def is_behind(self) -> bool:
        return any(span.is_behind for span in self.spans)


def reference(name: str, frame: "pd.DataFrame") -> ResultFile:
    """A shipped reference by name, any file by its path; without a name the shipped one of the
    nearest machine.

    Nearest: the same GPU model, then the same form (PCIe cards or not), then the nearest number of
    ranks, then a curve of ours before a published one. Raises UsageError if there is none.
    """
    shipped = catalog.results()
    known = f"shipped: {', '.join(shipped)}"
    if name:
        if name not in shipped and not Path(name).exists() and name != "-":
            raise unknown("file or reference", name, shipped)
        return _named(name, shipped[name]) if name in shipped else load(Path(name))
    wanted, forms, ranks = models(frame), _forms(frame), set(frame["ranks"])
    candidates = []
    for label, file in shipped.items():
        loaded = _named(label, file)
        if models(loaded.frame) & wanted:
            apart = min(
                abs(theirs - ours) for theirs in set(loaded.frame["ranks"]) for ours in ranks
            )
            candidates.append(
                (not _forms(loaded.frame) & forms, apart, "published" in label, label, loaded)
            )
    if not candidates:
        raise UsageError(
            f"no shipped reference is of {', '.join(sorted(wanted)) or 'a known GPU'}",
            f"give one by name, or a file of your own; {known}",
        )
    return min(candidates, key=lambda entry: entry[:4])[4]


def _named(label: str, file: Path) -> ResultFile:
    return replace(load(file), name=label)


def curve_verdicts(
    frame: "pd.DataFrame", against: "pd.DataFrame", behind: float = BEHIND_SHARE
) -> list[CurveVerdict]:
    """Compare every curve that the reference has too; below that share of its rate is behind."""
    theirs = best_rates(against)
    verdicts = []
    for key, curve in best_rates(frame).items():
        if key in theirs:
            shares = {
                size: rate / at
                for size, rate in sorted(curve.items())
                if (at := rate_at(theirs[key], size)) is not None
            }
            if shares:
                verdicts.append(CurveVerdict(key=key, spans=tuple(_spans(shares, behind))))
    return verdicts


def rate_at(curve: Mapping[int, float], size: int) -> float | None:
    """The curve's rate at a size; between its own sizes the lower of its neighbours, or that in the
    time of the larger; None outside of them.

    >>> (
    ...     rate_at({1024: 1.0, 4096: 4.0}, 2048),
    ...     rate_at({1024: 3.0, 4096: 4.0}, 2048),
    ...     rate_at({1024: 1.0}, 2048),
    ...     rate_at({1024: 1.0}, 1024),
    ... )
    (2.0, 3.0, None, 1.0)
    """
    sizes = sorted(curve)
    place = bisect_left(sizes, size)
    if place < len(sizes) and sizes[place] == size:
        return curve[size]
    if not 0 < place < len(sizes):
        return None
    smaller, larger = sizes[place - 1], sizes[place]
    return max(min(curve[smaller], curve[larger]), curve[larger] * size / larger)


def best_rates(frame: "pd.DataFrame") -> dict[CurveKey, RateCurve]:
    """The best rate of every backend at each size; libraries count with their own choice."""
    right = frame[(frame["status"] == "ok") & frame["busbw_gbs"].notna() & (frame["busbw_gbs"] > 0)]
    rates: dict[CurveKey, RateCurve] = {}
    own_rates: dict[CurveKey, RateCurve] = {}
    names = ("op", "backend", "buffers", "ranks", "placement", "notes", "size_bytes", "busbw_gbs")
    for op, backend, buffers, ranks, placement, notes, size, rate, *forced in zip(
        *(right[name].tolist() for name in (*names, *_FORCED)), strict=True
    ):
        # a check of the data takes no time of the collective
        conditions = tuple(one for one in conditions_of(notes) if one != "unchecked")
        is_own = forced == _OWN_VALUES
        key = CurveKey(op, backend, buffers, ranks, placement, conditions)
        for curve in (rates, own_rates) if is_own else (rates,):
            here = curve.setdefault(key, {})
            here[size] = max(here.get(size, 0.0), rate)
    return rates | own_rates


def _spans(shares: Mapping[int, float], behind: float) -> Iterator[RateSpan]:
    """Neighbouring sizes with the same verdict as one span."""
    for is_behind, group in groupby(shares.items(), key=lambda pair: pair[1] < behind):
        sizes, values = zip(*group, strict=True)
        yield RateSpan(
            first=sizes[0], last=sizes[-1], is_behind=is_behind, least=min(values), most=max(values)
        )


def _forms(frame: "pd.DataFrame") -> set[bool]:
    """Whether GPUs are PCIe cards: the same model with fewer links."""
    return {
        "PCIE" in str(device).upper()
        for device in frame["device"].unique()
        if _GPU_MODEL.search(str(device))
    }


def models(frame: "pd.DataFrame") -> set[str]:
    """GPU models named in a file."""
    return {model_of(str(device)) for device in frame["device"].unique()} - {""}


def model_of(name: str) -> str:
    """The GPU model in a product's name, or nothing.

    >>> model_of("NVIDIA A100-SXM4-80GB"), model_of("Intel Xeon")
    ('A100', '')
    """
    match = _GPU_MODEL.search(name)
    return match[1].upper() if match is not None else ""
