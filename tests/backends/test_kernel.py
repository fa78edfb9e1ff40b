"""Somebody's kernel as a backend: the shipped examples are right, and what a bad one does is named.
GPUs are host memory here.
"""

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.backends import repeat
from collbench.backends.base import Batch, GpuOptions, Samples, SessionOptions
from collbench.backends.blocking import GUARD, MARGIN_BYTES, stray, zones
from collbench.backends.gpu import session as gpu_session
from collbench.backends.gpu.memory import GpuArray
from collbench.backends.kernel import backend
from collbench.cli import run
from collbench.core.case import Case, Problem
from collbench.core.collectives import OPS, OpName
from collbench.core.dtypes import DTYPES
from collbench.core.errors import CollbenchError, UsageError
from collbench.core.record import Record, read
from collbench.launch.local import LocalGroup
from tests.support.batteries import placements
from tests.support.commands import Capture
from tests.support.host_gpu import HostKernelRank
from tests.support.nvrtc import nvrtc_for
from tests.support.runs import Run, needs_mpi, sweep, under_mpirun
from tests.support.tables import cells_of
from tests.support.tiers import tiered

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
NUMPY = EXAMPLES / "numpy_ranks.py"
# An allreduce whose launches do what follows; REDUCE stands for their work
KERNEL = """
import ctypes, os, sys, time
import numpy as np
OPS, SHARED_BYTES = ("allreduce",), 1 << 20
def array(given):
    if isinstance(given, np.ndarray): return given
    (size,), (address, _) = (given.__cuda_array_interface__[name] for name in ("shape", "data"))
    data = np.ctypeslib.as_array((ctypes.c_ubyte * (4 * size)).from_address(address))
    return data.view(given.__cuda_array_interface__["typestr"])
class Part:
    launches = turn = 0
    def __init__(self, rank):
        self.rank = rank
        assert (rank.device, rank.__cuda_stream__()) in ((-1, (0, -1)), (0, (0, 0)))
    def reduce(self, source, target):
        self.launches += 1
        at = self.launches % 2 << 19
        slots = self.rank.shared[:, at : at + source.nbytes].view(source.dtype)
        slots[self.rank.rank] = source
        self.rank.allgather(b"")
        np.add.reduce(slots, axis=0, out=target)
    def run(self, call):
        is_last = self.rank.rank == self.rank.ranks - 1
        target, n, self.turn = array(call.target), call.count, 1 - self.turn
        address = target.ctypes.data
        BODY
make = Part
"""
LINE = KERNEL[: KERNEL.index("BODY")].count("\n") + 1  # of the first line of a body


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "KERNELS", {})


def kernel(body: str) -> str:
    """The text of that kernel."""
    work = "self.reduce(array(call.source), target)"
    return KERNEL.replace("BODY", body.replace("REDUCE", work).replace("\n", "\n        "))


def swept(folder: Path, text: str, *options: str, more: str = "") -> tuple[int, list[Record]]:
    """The exit code and the rows of a sweep of a kernel with that text, and of more."""
    (folder / "mine.py").write_text(text)
    rows = folder / "rows.csv"
    short = ["--sizes", "1K,64K", "--ranks", "2", "--repeats", "1", "--iters", "5", "--hot"]
    asked = ["--backend", f"{folder}/mine.py{more}", *short, "--csv", str(rows)]
    code = run(["sweep", *asked, *options])
    return code, read(rows) if rows.exists() else []


# Good kernels


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_launched", [False, pytest.param(True, marks=needs_mpi)])
def test_numpy_ranks_are_right_and_compared_where_the_file_is_not(
    tmp_path: Path, is_launched: bool, capfd: Capture
) -> None:
    """Two backends with shared memory of the launcher, too, which one size and placement show."""
    sizes, placements = ("64K", "out") if is_launched else ("1000,64K", "out,in")
    kinds = ["--dtype", "int32,float64,float16", "--sizes", sizes, "--distribution", "5"]
    kinds += ["--placement", placements, "--iters", "5", *([] if is_launched else ["--hot"])]
    command = sweep("--backend", f"cpu,{NUMPY}", *kinds, "--repeats", "1", "--csv", "rows.csv")
    whole = under_mpirun(3, command) if is_launched else [*command, "--ranks", "3"]
    with Run(tmp_path, whole) as started:
        assert started.finish(120) == 0, started.stderr
        rows = [row for row in read(started.csv) if row.backend == "numpy_ranks"]
    right = [row for row in rows if row.status == "ok"]
    assert {f"{row.dtype} {row.algo}" for row in right} == {"int32 library", "float64 library"}
    assert all(row.floor_us and row.of_floor and row.max_us for row in right)
    assert all("numpy_ranks.py sha256:" in row.versions for row in right)
    assert {row.reason for row in rows} == {"", "numpy_ranks.py has no float16"}
    pictures = [["--plot", str(tmp_path / "plot.svg")], ["--html", str(tmp_path / "a.html")]]
    for view in ([], *([] if is_launched else pictures)):
        assert run(["compare", str(tmp_path / "rows.csv"), *view]) == 0
    assert "numpy_ranks" in capfd.readouterr().out


def test_two_kernels_are_measured_one_after_the_other(tmp_path: Path) -> None:
    _, rows = swept(tmp_path, kernel("REDUCE"), "--op", "allreduce,allgather", more=f",{NUMPY}")
    assert [(row.backend, row.status) for row in rows if row.op == "allreduce"] == [
        *[("mine", "ok")] * 2,
        *[("numpy_ranks", "ok")] * 2,
    ]
    assert "numpy_ranks.py serves allreduce, not allgather" in {row.reason for row in rows}


@pytest.mark.exhaustive
def test_all_is_read_as_commands_read_it(tmp_path: Path) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text(f'[sweep]\nbackend = "{NUMPY}"\nsizes = ["4K"]\nranks = 2\n')
    assert run(["sweep", "--preset", str(preset), "--repeats", "1"]) == 0
    job = str(EXAMPLES / "trace.json")
    short = ["--ranks", "2", "--dtype", "float32", "--budget", "5s"]
    assert run(["replay", job, "--backend", str(NUMPY), *short]) in (0, 3)


# Bad ones


BAD = [
    ("REDUCE", 0, "ok: "),
    ("REDUCE\nif is_last: target[3] += 1", 1, "wrong: rank 1 element 3: got "),
    (
        "REDUCE\nif is_last: ctypes.memset(address + 4 * n, 0, 4)",
        *(1, "wrong: rank 1: got 4 bytes written, the nearest is byte 1 behind its output"),
    ),
    (
        "REDUCE\nctypes.memset(address - 4, 0, 1)",
        *(1, "wrong: rank 0: got 1 bytes written, the nearest is byte 4 before its output"),
    ),
    # launches that do nothing: all after some, and every second one, whose work another did
    ("if self.launches < 4: REDUCE", 1, "wrong: rank 0 element 0: got "),
    ("if self.turn: REDUCE", 1, "wrong: rank 0 element 0: got "),
    (
        "REDUCE\nif is_last: raise ValueError('no luck\\nat all')",
        *(1, f"error: mine.py, line {LINE + 1}: ValueError: no luck"),
    ),
    (
        "REDUCE\nwhile is_last and self.launches > 3: time.sleep(0.01)",
        *(4, f"rank 1 is at line {LINE + 1} of mine.py, in allreduce, after 1 s"),
    ),
    # where Python cannot interrupt it
    ("REDUCE\nif is_last: sum(range(10**13))", *(4, "error: rank 1 does not answer; rank 0 ")),
    (
        "self.rank.allgather(bytes(5000))",
        *(1, f"error: mine.py, line {LINE}: ValueError: allgather of 5000 bytes"),
    ),
    # launches that look at the ends of their buffers whether they ran before
    (
        "ends = [float(one[at]) for one in (array(call.source), target) for at in (0, -1)]\n"
        "if self.__dict__.get(id(call)) == ends: return\nREDUCE\n"
        "ends[2:] = float(target[0]), float(target[-1])\nself.__dict__[id(call)] = ends",
        *(1, "wrong: rank 0 element "),
    ),
    ("REDUCE\nif is_last: sys.exit(5)", 1, f"error: mine.py, line {LINE + 1}: SystemExit: 5"),
    ("REDUCE\nif is_last: os._exit(3)", 4, "error: rank 1 ended with code 3; rank 0 "),
    (
        "if n > 256: raise NotImplementedError('at most 256')\nREDUCE",
        *(0, f"waived: mine.py, line {LINE}: NotImplementedError: at most 256"),
    ),
]


@tiered(("body", "code", "said"), BAD, 2)
def test_what_a_kernel_does_is_named(tmp_path: Path, body: str, code: int, said: str) -> None:
    found, rows = swept(tmp_path, kernel(body), "--timeout", "1")
    assert (found, rows[-1].backend) == (code, "mine")
    assert said in f"{rows[-1].status}: {rows[-1].reason}"


def test_a_file_beside_the_kernel_s_own_is_named(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def refuse():\n    raise NotImplementedError('too large')")
    body = f"sys.path.append({str(tmp_path)!r})\nimport beside\nif n > 256: beside.refuse()\nREDUCE"
    found, rows = swept(tmp_path, kernel(body))
    assert (found, rows[-1].status) == (0, "waived")
    assert rows[-1].reason == "beside.py, line 2: NotImplementedError: too large"


@tiered("who", ["is_last", "not is_last", "True"], 1)
@tiered("where", ["", "REDUCE\n"], 1)
def test_a_refusal_leaves_other_points_alone(tmp_path: Path, who: str, where: str) -> None:
    body = f"{where}if n == 256 and {who}: raise NotImplementedError\nREDUCE"
    _, rows = swept(tmp_path, kernel(body), "--timeout", "5")
    assert {row.size_bytes: row.status for row in rows} == {1024: "waived", 65536: "ok"}


@pytest.mark.exhaustive
@needs_mpi
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("REDUCE", 0, ""),  # with a thread that never ends
        ("REDUCE\nif is_last: sys.exit(5)", 1, f"mine.py, line {LINE + 1}: SystemExit: 5"),
        # in far less than the limit of this run, which is that of a hang
        ("if is_last: 1 / 0\nREDUCE", 1, f"mine.py, line {LINE}: ZeroDivisionError"),
        ("if n == 256 and is_last: raise NotImplementedError\nREDUCE", 0, ""),
    ],
)
def test_what_a_kernel_does_is_named_under_mpirun(
    tmp_path: Path, body: str, code: int, said: str
) -> None:
    (tmp_path / "kernels").mkdir()
    file, thread = tmp_path / "kernels/mine.py", "target=time.sleep, args=(1000,)"
    file.write_text(f"{kernel(body)}import threading\nthreading.Thread({thread}).start()\n")
    short = ["--sizes", "1K,64K", "--repeats", "1", "--iters", "5", "--hot", "--timeout", "300"]
    with Run(tmp_path, under_mpirun(2, sweep("--backend", str(file), *short))) as started:
        assert (started.finish(60), said in started.stderr) == (code, True), started.stderr


@tiered("is_launched", [False, pytest.param(True, marks=needs_mpi)], 1)
def test_what_a_kernel_prints_is_no_row(tmp_path: Path, is_launched: bool) -> None:
    printed = "print('hello', flush=True)\nctypes.CDLL(None).puts(b'hi')\nREDUCE"
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/mine.py").write_text(f"{kernel(printed)}print('loaded')\n")
    short = ["--sizes", "1K", "--repeats", "1", "--iters", "5", "--csv", "-"]
    command = sweep("--backend", str(tmp_path / "kernels/mine.py"), *short)
    whole = under_mpirun(2, command) if is_launched else [*command, "--ranks", "2"]
    with Run(tmp_path, whole) as started:
        assert started.finish(60) == 0, started.stderr
        assert [line.split(",")[0] for line in started.stdout.splitlines()] == ["op", "allreduce"]
        assert {"hello", "hi", "loaded"} <= set(started.stderr.splitlines())


@pytest.mark.parametrize(("text", "code", "error"), cells_of(__file__, "no-kernels.tsv"))
def test_a_file_that_is_no_kernel_is_named(
    tmp_path: Path, capfd: Capture, text: str, code: str, error: str
) -> None:
    assert swept(tmp_path, text)[0] == int(code)
    assert run(["sweep", "--backend", f"{tmp_path}/gone.py"]) == 2
    said = capfd.readouterr().err
    assert error in said and "gone.py: [Errno 2] No such file" in said and "Traceback" not in said
    assert "Hint: give the path of a Python file" in said


@pytest.mark.parametrize(
    "name", ["nccl", "cpu", "verbs", "2nd", "a b", "numpy_ranks", "all", "auto", "ours"]
)
def test_names_that_rows_cannot_have_are_refused(tmp_path: Path, name: str) -> None:
    assert backend.add(str(NUMPY)) == backend.add(f"{EXAMPLES}/../examples/numpy_ranks.py")
    with pytest.raises(UsageError, match="--backend: "):
        backend.add(f"{tmp_path}/{name}.py")
    (tmp_path / "linked.py").symlink_to(NUMPY)
    assert backend.add(str(tmp_path / "linked.py")) == "linked"


def test_all_stands_alone(capfd: Capture) -> None:
    assert run(["sweep", "--backend", f"all,{NUMPY}"]) == 2
    assert "'all' stands alone" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["check", "tune", "trace", "overlap", "hunt"])
def test_other_commands_refuse_a_kernel(command: str, capfd: Capture) -> None:
    assert run([command, "--backend", str(NUMPY)]) == 2
    said = capfd.readouterr().err
    assert "is not one of" in said and "sweep and replay measure kernels of files" in said


# Guard zones


@pytest.mark.parametrize("op", OPS)
def test_every_byte_around_the_buffers_is_guarded(op: OpName) -> None:
    for in_place, rank in ((place, rank) for place in placements(op) for rank in range(3)):
        of: dict[str, Any] = {"root": 1, "dtype": "float16", "redop": "sum", "in_place": in_place}
        problem = Problem(op=op, n=3, block_count=7, margin_bytes=MARGIN_BYTES, **of)
        at, found = problem.buffers(rank), zones(problem, rank)
        own = {*range(at.in_offset, at.in_offset + at.in_bytes)}
        own |= {*range(at.out_offset, at.out_offset + at.out_bytes)}
        assert {byte for zone in found for byte in zone} == {*range(at.total_bytes)} - own
        for number, zone in enumerate(found):
            seen = [bytes([GUARD]) * len(one) for one in found]
            assert stray(problem, rank, seen) is None
            seen[number] = bytes([0]) + seen[number][1:] if number else seen[0][1:] + bytes([0])
            wrong = stray(problem, rank, seen)
            assert wrong is not None and " byte 1 " in wrong.got and zone


# GPUs


def on_host_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> list[Samples]:
    """The samples of a kernel with that text."""
    (folder / "mine.py").write_text(f"{text}ON_GPUS = True\n")
    monkeypatch.setattr(gpu_session, "device_count", lambda: 2)
    monkeypatch.setattr(backend, "KernelGpuRank", HostKernelRank)
    # on busy cores launches here that prove a batch may be many times as long, not on a GPU
    monkeypatch.setattr(repeat, "_MUCH_FASTER", math.inf)
    mine = backend.KernelBackend(folder / "mine.py")
    assert mine.is_gpu and mine.is_apart
    of: dict[str, Any] = {"op": "allreduce", "backend": "mine", "algo": "library", "proto": ""}
    given = [Case(**of, ranks=2, size_bytes=size) for size in (4096, 1000)]
    options = SessionOptions(gpu=GpuOptions(timeout_s=2.0))
    with closing(backend.KernelGpuSession(LocalGroup(), given, mine.file, options)) as made:
        assert "mine.py sha256:" in made.version
        return [made.run(one, Batch(iterations=3, single_launches=2)) for one in given]


@tiered(
    ("body", "wrong"),
    [
        ("REDUCE", ""),
        ("REDUCE\nif is_last: target[1] = 7", "7.0"),
        ("if self.launches < 20: REDUCE", ""),
        ("REDUCE\nctypes.memset(address + 4 * n, 0, 2)", "byte 1 behind its output"),
    ],
    1,
)
def test_a_kernel_on_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, wrong: str
) -> None:
    for samples in on_host_gpus(tmp_path, monkeypatch, kernel(body)):
        assert bool(samples.wrong) == (body != "REDUCE")
        assert all(wrong in one.got for one in samples.wrong), samples.wrong


def test_what_a_kernel_on_gpus_raises_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = kernel("REDUCE\nif self.launches > 40: raise KeyError('x')")
    with pytest.raises(CollbenchError, match=rf"^mine.py, line {LINE + 1}: KeyError: 'x'$"):
        on_host_gpus(tmp_path, monkeypatch, text)


@pytest.mark.parametrize("name", DTYPES)
def test_memory_of_a_gpu_has_elements_that_numpy_knows(name: Any) -> None:
    found = GpuArray(4096, 16, name).__cuda_array_interface__
    kind = np.dtype(str(found["typestr"]))
    assert (16 // kind.itemsize,) == found["shape"]
    assert kind.kind == ("u" if name.startswith(("bfloat", "float8")) else np.dtype(name).kind)


@pytest.mark.parametrize("arch", [70, 90])
def test_the_cuda_example_compiles(arch: int) -> None:
    _, _, text = (EXAMPLES / "cuda_kernel.py").read_text().partition('SOURCE = r"""')
    nvrtc = nvrtc_for(arch)
    program = nvrtc.createProgram(text.partition('"""')[0], "cuda_kernel.cu", [], [])
    nvrtc.compileProgram(program, [f"-arch=sm_{arch}"])
    assert nvrtc.getCUBIN(program)
