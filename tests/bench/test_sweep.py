"""The sizes and the cases of a sweep: how many there are is known before any is made."""

import pytest

from collbench.bench.sweep import MAX_POINTS, Sweep, cases, sizes_between
from collbench.core.errors import UsageError


def test_sizes_grow_by_the_factor_or_the_step() -> None:
    assert sizes_between(1, 100, factor=1.5) == (1, 2, 3, 5, 7, 11, 17, 25, 38, 57, 86)
    assert sizes_between(1000, 1000, factor=2) == (1000,)
    assert sizes_between(1, 10, step=4) == (1, 5, 9)


def test_a_factor_close_to_one_gives_every_whole_number() -> None:
    assert sizes_between(10, 15, factor=1 + 1e-12)[:5] == (10, 11, 12, 13, 14)


@pytest.mark.parametrize("how", [{"factor": 1 + 1e-9}, {"step": 1}])
def test_too_many_sizes_are_counted_not_made(how: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"about \d{10,} sizes from 8 to"):
        sizes_between(8, 1 << 60, **how)  # type: ignore[arg-type]


def test_points_are_counted_as_they_are_made() -> None:
    sweep = Sweep(
        sizes=(1024, 4096),
        op=("allreduce", "broadcast", "alltoall"),
        ranks=(2, 4),
        redop=("sum", "max"),
        root=(0, 1),
        knobs={"slots": (2, 4, 8), "algo": ("auto",)},
    )
    # of allreduce each reduction, of broadcast each root
    assert len(cases(sweep, {})) == 2 * 2 * 3 * (2 + 2 + 1)


def test_too_many_points_are_refused_with_their_number() -> None:
    sweep = Sweep(sizes=tuple(range(4, 4 * MAX_POINTS, 4)), knobs={"algo": ("ring", "tree")})
    with pytest.raises(UsageError, match=f"{2 * (MAX_POINTS - 1)} points: {MAX_POINTS - 1} sizes"):
        cases(sweep, {})
