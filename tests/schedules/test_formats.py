"""Algorithms in files: MSCCL's XML, MSCCL++'s plans, and what is refused of them."""

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest

from collbench.core.collectives import collective
from collbench.core.errors import UsageError
from collbench.planning.layout import lay_out, registered
from collbench.schedules import formats
from collbench.schedules.passes import pair_traffic
from tests.support import algorithm_files
from tests.support.algorithm_files import algo, block, halves, pairs, plan
from tests.support.batteries import assert_right, placements, problem, world_of
from tests.support.tables import cells_of

FILES = Path(__file__).parents[1] / "data" / "msccl"


def loaded(folder: Path, text: str, name: str = "mine.xml") -> formats.AlgorithmFile:
    file = folder / name
    file.write_text(text)
    return formats.load(str(file))


def assert_runs(file: formats.AlgorithmFile, *, count: int = 21) -> None:
    """The reference runs it, in both placements, with several channels and few slots."""
    for in_place in placements(file.op):
        what = problem(file.op, file.n, root=file.root, count=count, in_place=in_place)
        schedule = file.schedule(in_place=in_place)
        for channels, direct in ((1, False), (2, True)):
            assert_right(lay_out(what, schedule, channels=channels, direct=direct, chunk_bytes=16))


@pytest.mark.parametrize("file", sorted(FILES.iterdir()), ids=lambda file: file.stem)
def test_programs_of_registered_algorithms_are_read_as_the_same(file: Path) -> None:
    """Written from the schedules that their names tell: collective, algorithm, ranks."""
    op_name, name, ranks = file.stem.split("-")
    what, n = collective(op_name), int(ranks)
    served, root = what.name, n - 1 if what.is_rooted else 0
    schedule = registered(served, name, world_of(name, n, root))
    for in_place in placements(served):
        again = formats.load(str(file)).schedule(in_place=in_place)
        assert (again.op, again.n, again.root) == (served, n, root)
        assert pair_traffic(again) == pair_traffic(schedule)


@pytest.mark.parametrize(("text", "ending"), algorithm_files.texts())
def test_programs_run(tmp_path: Path, text: str, ending: str) -> None:
    assert_runs(loaded(tmp_path, text, f"mine{ending}"))


def test_blocks_that_wait_for_each_other_are_one_track(tmp_path: Path) -> None:
    file = loaded(tmp_path, pairs())
    assert len(file.schedule(in_place=True).program(0)) == 1


def test_chunks_of_a_block_that_go_one_way_are_one(tmp_path: Path) -> None:
    file = loaded(tmp_path, halves())
    assert file.schedule(in_place=False).chunks["in"] == 2


def test_an_input_that_is_overwritten_stays_as_it_is(tmp_path: Path) -> None:
    """Out of place a sum that the file keeps in its input goes to scratch memory."""
    rank = [
        block(0, peer, peer, ("s", "i0", "i0"), ("rrc", "i0", "i0"), ("cpy", "i0", "o0"))
        for peer in (1, 0)
    ]
    file = loaded(tmp_path, algo("allreduce", (1, 1, 0), rank, "o"))
    assert file.schedule(in_place=False).chunks["tmp"] == 1
    assert_runs(file)


def test_blocks_that_only_one_loop_keeps_in_order_are_one_track(tmp_path: Path) -> None:
    """Rank 0 adds what a block received in another one, which hears of it from rank 1. Nothing says
    so to the block that receives in the next loop, whose scratch memory is the same.
    """
    first = block(0, 1, 1, ("r", "s0", "s0"), ("s", "i0", "i0")) + block(
        1, -1, 1, ("r", "s1", "s1"), ("cpy", "i0", "o0"), ("re", "s0", "o0"), chan=1
    )
    second = block(0, 0, 0, ("s", "i0", "i0"), ("rrc", "i0", "o0")) + block(
        1, 0, -1, ("s", "i0", "i0", (0, 1)), chan=1
    )
    file = loaded(tmp_path, algo("allreduce", (1, 1, 2), [first, second], "o"))
    assert [len(program) for program in file.schedule(in_place=False).programs] == [1, 1]
    what = problem("allreduce", 2, count=100)
    assert_right(lay_out(what, file.schedule(in_place=False), chunk_bytes=16))


DEADLOCK = algo(
    "broadcast", (1, 1, 0), [block(0, 1, 1, ("r", "o0", "o0"), ("s", "i0", "o0"))] * 1
    + [block(0, 0, 0, ("r", "o0", "o0"), ("s", "o0", "o0"))], "o"
)  # fmt: skip
LARGE = algo(
    "allreduce", (9000,) * 3, [block(0, 1, 1, *[("cpy", "i0", "o0")] * 60, count=9000)] * 2, "o"
)


PROGRAMS = {
    **{"text": "", "pairs": pairs(), "halves": halves(), "swapped": halves(swapped=True)},
    **{"large": LARGE, "deadlock": DEADLOCK},
}


@pytest.mark.parametrize(
    ("name", "old", "new", "words"), cells_of(__file__, "refused-programs.tsv")
)
def test_refused_with_the_place(tmp_path: Path, name: str, old: str, new: str, words: str) -> None:
    assert old in PROGRAMS[name]
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, PROGRAMS[name].replace(old, new)).schedule(in_place=False)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("glres", "ops[0]: glres is no operation that our steps can do"),
        ("pipeline", "ops[0]: pipeline is no operation that our steps can do"),
        ("jump", "ops[0]: jump is no operation"),
        ("wait", "ops[0]: tb0 of rank 0 waits for ever"),
        ("sem_acquire semaphore_ids=[0]", "ops[0]: tb0 of rank 0 waits for ever"),
        ("signal channel_ids=[4]", "ops[0].channel_ids: there is no 4 among 1"),
        (
            "rre i0 I0 > i0 I0",
            "ops[0]: reads out[0] of rank 1, which has not said that it is there",
        ),
        ("put i0 > I1", "in no order to"),
        ("put i0 > S0", "nobody at rank 1 waits"),
        ("copy i0 >", "the buffers of copy do not fit"),
        ("copy i5 > i0", "src_buff[0]: 1 chunks from 5 on are not among the 2"),
        (
            'res i0 I0 > i0 I0 tbg_info={"tb_id":1,"tbg_size":2}',
            "gpus[0]: not all 2 thread blocks of a group do the same: res",
        ),
    ],
)
def test_plans_refused_with_the_place(tmp_path: Path, operation: str, words: str) -> None:
    text = json.dumps(plan("allreduce", (2, 2, 2), [[operation], ["copy i1 > s1"]]))
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, text, "mine.json").schedule(in_place=False)
    assert words in caught.value.message


@pytest.mark.parametrize("key", ["gpus", "collective", "inplace", "threadblocks", "src_buff"])
def test_a_plan_without_a_key_is_refused(tmp_path: Path, key: str) -> None:
    text = json.dumps(algorithm_files.packets()).replace(f'"{key}"', '"other"')
    with pytest.raises(UsageError, match=f"no {key}|no program"):
        loaded(tmp_path, text, "mine.json")


@pytest.mark.parametrize("value", [[], [0, 1], None, "0", True, 7, -1])
@pytest.mark.parametrize("key", ["rank", "buffer_id", "init_value", "size", "type"])
def test_a_plan_with_another_value_ends_in_no_traceback(
    tmp_path: Path, key: str, value: object
) -> None:
    before = json.dumps(algorithm_files.put_and_get())
    text = re.sub(rf'"{key}": ("\w+"|\d+)', f'"{key}": {json.dumps(value)}', before)
    with suppress(UsageError):
        loaded(tmp_path, text, "mine.json").schedule(in_place=False)


def test_the_name_tells_files_apart(tmp_path: Path) -> None:
    one = loaded(tmp_path, pairs(), "a b.xml")
    other = loaded(tmp_path, pairs().replace("mine", "other"), "a b.xml")
    assert one.name.startswith("a-b@")
    assert len({one.name, other.name, loaded(tmp_path, pairs(), "c.xml").name}) == 3
    assert formats.loaded(one.name) is one
