"""The gate of a comparison: it fails where something is surely slower by more than the limit, and
where the base has what the new file lacks; where something took longer by more than the limit, and
that may be chance, it says so and does not pass. A gate that passes because nothing was left to
compare, or because nothing could be judged, is none.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from collbench.compare.changes import Changes
from collbench.compare.losses import Loss
from collbench.core.errors import UNJUDGED_CODE
from collbench.core.limits import LEAST_RUNS
from collbench.core.text import counted

GateVerdict = Literal["PASS", "FAIL", "UNKNOWN"]
GATE_CODES: dict[GateVerdict, int] = {"PASS": 0, "FAIL": 1, "UNKNOWN": UNJUDGED_CODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a gate says. percent: its limit. slower, unjudged: places of rows of the comparison that
    are surely slower, or that took longer, by more than that. losses: those that count. reasons:
    in words, why it does not pass; remedy: what would decide the unjudged rows.
    """

    percent: float
    slower: tuple[int, ...]
    unjudged: tuple[int, ...]
    losses: tuple[Loss, ...]
    reasons: tuple[str, ...]
    verdict: GateVerdict
    remedy: str

    @property
    def exit_code(self) -> int:
        return GATE_CODES[self.verdict]


def gate_of(
    changes: Changes,
    percent: float,
    *,
    allowed: Collection[str] = (),
    noisy: Collection[str] = (),
    is_unjudged_allowed: bool = False,
) -> Gate:
    """The gate of a comparison. allowed: kinds of losses that pass. noisy: files most of whose rows
    are noise, which counts where no other run is left. is_unjudged_allowed: what cannot be judged
    passes.
    """
    rows, least = changes.rows, 1 + percent / 100
    is_longer = (rows["ratio"] > least).to_numpy()
    slower = is_longer & (rows["verdict"] == "worse").to_numpy()
    open_rows = is_longer & (rows["verdict"] == "cannot tell").to_numpy()
    groups = [one for one in changes.called if one.verdict == "worse" and one.ratio > least]
    lost = tuple(loss for loss in changes.losses if loss.kind not in allowed)
    bad = [f"{loss.text}: --allow {loss.kind} lets that pass" for loss in lost]
    if slower.any() or groups:
        bad.append(f"{counted(int(slower.sum()), 'row')} slower by more than {percent:g}%")
    is_noise = rows["is_noise"].to_numpy(dtype=np.bool_)
    unsure = [f"cannot judge: most rows of {name} are noise" for name in noisy if is_noise.all()]
    if not len(rows):
        bad.append("cannot judge: nothing was compared")
    elif open_rows.any():
        if quiet := int((open_rows & ~is_noise).sum()):
            count = counted(quiet, "row")
            unsure.append(f"not judged: {count} took over {percent:g}% longer, which may be chance")
        if noise := int((open_rows & is_noise).sum()):
            unsure.append(
                f"not judged: {counted(noise, 'row')} of noise took over {percent:g}% longer"
            )
    elif not changes.is_judged:
        is_mostly = is_noise.mean() > 1 / 2
        why = (
            "most rows are noise" if is_mostly else f"no interval is narrow enough for {percent:g}%"
        )
        unsure.append(f"cannot judge: {why}")
    verdict: GateVerdict = "PASS"
    if bad:
        verdict = "FAIL"
    elif unsure and not is_unjudged_allowed:
        verdict = "UNKNOWN"
    return Gate(
        percent=percent,
        slower=tuple(slower.nonzero()[0].tolist()),
        unjudged=tuple(open_rows.nonzero()[0].tolist()),
        losses=lost,
        reasons=(*bad, *unsure),
        verdict=verdict,
        remedy=remedy(changes, open_rows) if unsure else "",
    )


def remedy(changes: Changes, open_rows: NDArray[np.bool_]) -> str:
    """What would decide the rows that cannot be told, of which some are over the limit."""
    new, base = changes.runs
    is_noise = changes.rows["is_noise"].to_numpy(dtype=np.bool_)
    asked = open_rows if open_rows.any() else np.ones(len(is_noise), dtype=np.bool_)
    if is_noise[asked].mean() > 1 / 2:
        return (
            f"{counted(int(is_noise.sum()), 'row')} of noise (other processes had the machine, or"
            " repeats or runs disagree): measure again on a quiet machine"
        )
    if changes.is_by_curves:
        return (
            "neighbouring sizes of a curve are judged together: measure more of them, or more often"
            " (--repeats), on a quiet machine"
        )
    if base < LEAST_RUNS:
        return (
            f"a row alone is called from {100 * (changes.least_row - 1):.0f}% on: {LEAST_RUNS} runs"
            " of the base (--base A B C) show how far runs differ, and less"
        )
    return (
        f"a row alone is called from {100 * (changes.least_row - 1):.0f}% on: measure the new side"
        f" more often (--runs {2 * max(new, 2)}), on a quiet machine"
    )
