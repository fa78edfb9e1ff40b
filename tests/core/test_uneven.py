"""Unequal blocks: counts by formulas and from files, what they make of a case, and refusals."""

from pathlib import Path

import pytest

from collbench.core.case import Case
from collbench.core.collectives import UNEVEN_OPS, OpName
from collbench.core.errors import UsageError
from collbench.core.uneven import counts_by, counts_in, is_matrix, read_counts, skew
from tests.support.tables import cells_of


def case(op: OpName, size_bytes: int, skew: str = "", file: Path | None = None, n: int = 4) -> Case:
    counts_file = read_counts(file) if file is not None else None
    return Case(
        op=op, backend="cpu", ranks=n, size_bytes=size_bytes, skew=skew, counts_file=counts_file
    ).rounded()


@pytest.mark.parametrize("formula", ["even", "lognormal:1.2", "zipf:1.1", "hot:2", "hot:9"])
@pytest.mark.parametrize("op", UNEVEN_OPS)
def test_formulas_share_every_element_the_heaviest_rank_first(op: OpName, formula: str) -> None:
    for n, elements in ((2, 7), (5, 1), (8, 100_003)):
        counts = counts_by(formula, op, n, elements)
        rows = [counts[at : at + n] for at in range(0, len(counts), n)]
        assert len(rows) == (n if is_matrix(op) else 1)
        for row in rows:
            assert sum(row) == elements
            assert sorted(row, reverse=True) == list(row)
            assert (0 in row) == ((formula == "hot:2" and n > 2) or elements < n)


def test_a_case_says_its_size_its_skew_and_how_uneven_it_is(tmp_path: Path) -> None:
    assert case("allgatherv", 4003).size_bytes == 4000
    assert [case(op, 4000, "hot:1").imbalance for op in UNEVEN_OPS] == [
        pytest.approx(4 / 3),  # allgatherv: the ranks without a block receive all of S
        pytest.approx(4 / 3),
        pytest.approx(4.0),  # alltoallv: rank 0 receives three times S, not three quarters
    ]
    assert case("alltoallv", 4000, "even").imbalance == pytest.approx(1.0)
    assert (case("allgather", 4000, "hot:1").skew, case("allgather", 4000).imbalance) == ("", None)
    file = tmp_path / "counts.txt"
    file.write_text("3, 0\n\n# what rank 1 sends\n1 4\n")
    found = case("alltoallv", 1, file=file, n=2)
    assert (found.size_bytes, found.counts()) == (16, (3, 0, 1, 4))
    assert found.skew.startswith("file:")
    assert found.problem().blocks(0) == [(0, 3, 0, 0), (3, 1, 1, 0)]
    file.write_text("3, 0\n1 5\n")
    assert case("alltoallv", 1, file=file, n=2).skew != found.skew


@pytest.mark.parametrize(("text", "op", "why"), cells_of(__file__, "idle-counts.tsv"))
def test_counts_that_leave_nothing_to_do_are_waived(
    tmp_path: Path, text: str, op: OpName, why: str
) -> None:
    (tmp_path / "counts").write_text(text)
    assert (
        case(op, 1, file=tmp_path / "counts", n=2)
        .why_senseless()
        .removeprefix(f"{tmp_path}/counts, ")
        .startswith(why)
    )


@pytest.mark.parametrize(("text", "why"), cells_of(__file__, "broken-counts.tsv"))
def test_a_wrong_file_is_refused_with_line_and_value(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "counts").write_text(text)
    with pytest.raises(UsageError, match=why):
        read_counts(tmp_path / "counts")
    with pytest.raises(UsageError, match="cannot read"):
        read_counts(tmp_path)


@pytest.mark.parametrize("text", ["zipf", "zipf:0", "hot:1.5", "pareto:1", "even:1", "zipf:nan"])
def test_a_formula_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"'{text}' is not one of even, lognormal:SIGMA"):
        skew(text)


def test_a_line_of_a_vector_may_be_cut(tmp_path: Path) -> None:
    (tmp_path / "counts").write_text("1 2\n3\n")
    assert counts_in(read_counts(tmp_path / "counts"), "reducescatterv", 3) == (1, 2, 3)
