"""What a new file lacks, or cannot vouch for, of what its base has, right and checked."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from collbench.core.peers import is_peer
from collbench.core.record import NOT_TRUE
from collbench.core.text import counted

if TYPE_CHECKING:
    import pandas as pd

LossKind = Literal["missing", "waived", "unchecked", "failed", "peers"]
LOSS_KINDS: tuple[LossKind, ...] = get_args(LossKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Rows that the new file lacks, or cannot vouch for; text: how many, and what."""

    kind: LossKind
    text: str


def losses(both: "pd.DataFrame", names: Collection[str]) -> tuple[Loss, ...]:
    """What was lost. both: the outer join of the new file with its base, by the columns `names`;
    the base's as name_base, `side` as pandas' indicator, the times of the new file in `_times`.
    """
    new, base = both["status"].fillna(""), both["status_base"].fillna("")
    only_new, only_base = both["side"] == "left_only", both["side"] == "right_only"
    was_right = base == "ok"
    is_unchecked = only_new & (new == "ok") & both["notes"].fillna("").str.contains("unchecked")
    point = [name for name in names if name != "conditions"]
    unchecked = both[is_unchecked][point].drop_duplicates()
    gone = both[only_base & was_right]
    if len(unchecked):  # there, but without the check
        seen = gone[point].merge(unchecked, how="left", on=point, indicator="again")["again"]
        gone = gone[(seen == "left_only").to_numpy()]
    peers: list[str] = []
    if "backend" in names:  # else one file may have the peer alone
        tried = (new == "ok") | new.isin([*NOT_TRUE, "error"])
        here, there = (set(both["backend"][side]) for side in (tried, base == "ok"))
        peers = sorted(name for name in there - here if is_peer(name))
        gone = gone[~gone["backend"].isin(peers)]
    waived = int(((new == "waived") & was_right & (both["side"] == "both")).sum())
    failed = int(new.isin([*NOT_TRUE, "error"]).sum())
    timeless = int(((new == "ok") & was_right & ~both["_times"].astype(bool)).sum())
    found: tuple[tuple[LossKind, int, str], ...] = (
        ("missing", len(gone), "of the base, missing"),
        ("missing", timeless, "right in the base, without a time"),
        ("waived", waived, "right in the base, waived"),
        ("unchecked", len(unchecked), "not checked"),
        ("failed", failed, "wrong or failed"),
    )
    kinds = [
        Loss(kind=kind, text=f"{counted(count, 'row')} {what}")
        for kind, count, what in found
        if count
    ]
    return (
        *kinds,
        *(Loss(kind="peers", text=f"{name}, which the base has, is gone") for name in peers),
    )
