"""Is a number normal? Curves of a file beside those of a reference, shipped or given: where it keeps up, and where it falls behind.

A curve is one backend's best rate at each size of one collective, ranks and placement, so that only what both files have is compared: NCCL's
own choice with NCCL's, our kernels with ours. Between two sizes of the reference the lower of their rates counts, because a library changes its
protocol somewhere between them; outside of its sizes nothing does.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collbench import catalog
from collbench.compare.load import Loaded, load
from collbench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

BEHIND = 0.9  # of the reference's rate: below it a size counts as behind; machines of one kind differ by less
_MODEL = re.compile(r"\b(GB200|GB300|B200|B300|H200|H100|H800|A100|A800|V100|P100|K40|L40S?|RTX \d{4}\w*)\b", re.IGNORECASE)

Curve = dict[int, float]  # size in bytes -> GB/s of bus bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Sizes in a row with one verdict: how much of the reference's rate they reach, from least to most; None: the reference has none."""

    first: int
    last: int
    is_behind: bool
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One curve against the reference's."""

    op: str
    backend: str
    ranks: int
    spans: tuple[Span, ...]

    @property
    def is_behind(self) -> bool:
        return any(span.is_behind for span in self.spans)


def reference(name: str, frame: "pd.DataFrame") -> Loaded:
    """A shipped reference by name, any file by its path; without a name the shipped one of the nearest machine.

    Nearest: the same GPU model, then as many ranks. Raises UsageError if there is none.
    """
    shipped = catalog.results()
    if name:
        return load(shipped.get(name, Path(name)))
    wanted, ranks = models(frame), set(frame["ranks"])
    found = []
    for label, file in shipped.items():
        loaded = load(file)
        if models(loaded.frame) & wanted:
            found.append((not set(loaded.frame["ranks"]) & ranks, "published" in label, label, loaded))
    if not found:
        known = ", ".join(shipped)
        raise UsageError(f"no shipped reference is of {', '.join(sorted(wanted)) or 'a known GPU'}", f"give one by name ({known}) or a file of your own")
    return min(found, key=lambda entry: entry[:3])[3]


def normal(frame: "pd.DataFrame", against: "pd.DataFrame") -> list[Verdict]:
    """Every curve of the frame that the reference has, with where it falls behind."""
    theirs = _curves(against)
    found = []
    for key, curve in _curves(frame).items():
        if key in theirs:
            shares = {size: rate / at for size, rate in sorted(curve.items()) if (at := rate_at(theirs[key], size)) is not None}
            if shares:
                found.append(Verdict(op=key[0], backend=key[1], ranks=key[2], spans=tuple(_spans(shares))))
    return found


def rate_at(curve: Mapping[int, float], size: int) -> float | None:
    """The curve's rate at a size; between its own sizes the lower of its neighbours; None outside of them.

    >>> rate_at({1024: 1.0, 4096: 4.0}, 2048), rate_at({1024: 1.0}, 2048), rate_at({1024: 1.0}, 1024)
    (1.0, None, 1.0)
    """
    sizes = sorted(curve)
    place = bisect_left(sizes, size)
    if place < len(sizes) and sizes[place] == size:
        return curve[size]
    return min(curve[sizes[place - 1]], curve[sizes[place]]) if 0 < place < len(sizes) else None


def _curves(frame: "pd.DataFrame") -> dict[tuple[str, str, int, str], Curve]:
    """The best rate of every backend at each size; of a library its own choice, where it has rows of that."""
    right = frame[(frame["status"] == "ok") & frame["busbw_gbs"].notna() & (frame["busbw_gbs"] > 0)]
    found: dict[tuple[str, str, int, str], Curve] = {}
    keys = zip(*(right[name].tolist() for name in ("op", "backend", "ranks", "placement")), strict=True)
    for key, size, rate in zip(keys, right["size_bytes"].tolist(), right["busbw_gbs"].tolist(), strict=True):
        curve = found.setdefault(key, {})
        curve[size] = max(curve.get(size, 0.0), rate)
    return found


def _spans(shares: Mapping[int, float]) -> Sequence[Span]:
    """Neighbouring sizes of one verdict together."""
    found: list[Span] = []
    for size, share in shares.items():
        is_behind = share < BEHIND
        if found and found[-1].is_behind == is_behind:
            before = found[-1]
            found[-1] = Span(first=before.first, last=size, is_behind=is_behind, least=min(before.least, share), most=max(before.most, share))
        else:
            found.append(Span(first=size, last=size, is_behind=is_behind, least=share, most=share))
    return found


def models(frame: "pd.DataFrame") -> set[str]:
    """GPU models named in a file."""
    return {model_of(str(device)) for device in frame["device"].unique()} - {""}


def model_of(name: str) -> str:
    """The GPU model in a product's name, or nothing.

    >>> model_of("NVIDIA A100-SXM4-80GB"), model_of("Intel Xeon")
    ('A100', '')
    """
    found = _MODEL.search(name)
    return found[1].upper() if found is not None else ""
