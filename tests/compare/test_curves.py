"""Results as curves and envelopes, on frames whose answers are worked out by hand."""

import math
from collections.abc import Iterator
from itertools import product

import pytest

from collbench.compare.curves import Curve, automatic, curves, envelope
from collbench.compare.plots.lines import MOST_COLORED, PlotLine, kinds, lines
from tests.support.frames import records, row


def sweep(scale: float = 1.0) -> Iterator[dict[str, object]]:
    """Ring is best at 4096 bytes, tree with two channels at 1024; NCCL between."""
    times = {
        ("ring", 1): (30.0, 40.0),
        ("ring", 2): (24.0, 32.0),
        ("tree", 1): (20.0, 60.0),
        ("tree", 2): (10.0, 50.0),
    }
    for (algo, channels), here in times.items():
        for size, time in zip((1024, 4096), here, strict=True):
            notes = "auto" if algo == "ring" and channels == 2 else ""
            yield row(
                (scale * time, scale * time * 1.1, scale * time),
                algo=algo,
                channels=channels,
                size_bytes=size,
                notes=notes,
                ceiling_gbs=float(channels),
            )
    for size, time in ((1024, 15.0), (4096, 36.0)):
        yield row((time, time, time), backend="nccl", size_bytes=size)


def named(found: tuple[Curve, ...]) -> dict[str, Curve]:
    return {curve.name: curve for curve in found}


def test_a_curve_is_a_configuration_with_its_sizes_ascending() -> None:
    found = named(curves(records(*reversed(list(sweep())))))
    assert set(found) == {
        "ring simple ch 1",
        "ring simple ch 2",
        "tree simple ch 1",
        "tree simple ch 2",
        "nccl",
    }
    ring = found["ring simple ch 2"]
    assert [(point.bytes, point.time_us, point.note) for point in ring.points] == [
        (1024, 24.0, "auto"),
        (4096, 32.0, "auto"),
    ]
    assert (ring.points[0].time_low_us, ring.points[0].time_high_us) == pytest.approx((24.0, 26.4))
    assert ring.points[1].busbw_gbs == pytest.approx(4096 / 32 / 1e3 * 1.5)
    assert (ring.best, found["tree simple ch 2"].best, found["nccl"].best) == ((4096,), (1024,), ())
    assert [name for name, curve in found.items() if curve.is_peer] == ["nccl"]
    assert ring.group.title == "allreduce, 4 ranks"


def test_one_repeat_has_no_bounds_and_no_ceiling_is_unknown() -> None:
    [curve] = curves(records(row((10.0,))))
    assert math.isnan(curve.points[0].time_low_us)
    assert math.isnan(curve.points[0].ceiling_gbs)
    assert kinds([curve]) == ["busbw", "time"]


def test_envelope_and_automatic_choice_name_their_configurations() -> None:
    found = curves(records(*sweep()))
    [best], [auto] = envelope(found), automatic(found)
    assert (best.name, [(point.bytes, point.note) for point in best.points]) == (
        "best of ours",
        [(1024, "tree simple ch 2"), (4096, "ring simple ch 2")],
    )
    assert [(point.bytes, point.note) for point in auto.points] == [
        (1024, "ring simple ch 2"),
        (4096, "ring simple ch 2"),
    ]
    uncertain = envelope(curves(records(row((10.0,)), row((11.0,), algo="tree"))))
    assert [(curve.name, curve.points[0].note) for curve in uncertain] == [
        ("fastest of ours: cannot tell which is best", "ring simple ?")
    ]
    tied = curves(records(row((10.0, 11.0)), row((10.5, 10.6), algo="tree")))
    assert [(curve.best, curve.points[0].answer) for curve in tied] == [
        ((1024,), "ring simple (1 of 2)"),
        ((), "ring simple (1 of 2)"),
    ]
    [library] = envelope(curves(records(row((10.0,), backend="nccl"))))
    assert (library.name, library.is_peer) == ("best of nccl", True)
    assert automatic([library]) == ()


def test_only_rows_that_are_right_count() -> None:
    assert curves(records(row(status="waived"), row((10.0,), status="wrong"))) == ()


def test_few_configurations_have_a_colour_each_and_of_many_the_best() -> None:
    few = lines(curves(records(*sweep())))
    assert [line.role for line in few] == ["best", "one", "one", "one", "one", "peer", "auto"]
    many = records(
        *[
            row((10.0 + channels + size,), channels=channels, size_bytes=1024 << size)
            for channels, size in product(range(1, 20), range(3))
        ]
    )
    drawn = lines(curves(many))
    assert [line.curve.name for line in drawn if line.role == "one"] == ["ring simple ch 1"]
    assert sum(line.role == "other" for line in drawn) == 18
    wide = records(
        *[
            row((10.0 + (channels - size) ** 2,), channels=channels, size_bytes=1024 << size)
            for channels, size in product(range(1, 20), range(1, 20))
        ]
    )
    assert sum(line.role == "one" for line in lines(curves(wide))) == MOST_COLORED


def test_forced_rows_of_a_library_come_after_its_own_choice() -> None:
    forced = [
        row((9.0,), backend="nccl", algo="ring", proto=proto) for proto in ("ll", "ll128", "simple")
    ]
    drawn = lines(curves(records(*forced, row((10.0,)), row((11.0,), backend="nccl"))))
    assert [line.curve.name for line in drawn if line.role == "peer"] == [
        "nccl",
        "nccl ring ll",
        "nccl ring ll128",
    ]
    assert [line for line in drawn if line.role == "other"] == [
        PlotLine(curve=drawn[0].curve, role="other")
    ]
