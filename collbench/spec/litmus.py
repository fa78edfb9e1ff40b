"""Litmus tests as data: what two sides do to memory that both reach, what they may see of it, and
which protocol relies on what.

Every cell of a test is one trial. It starts with the value of the round before ("old"); a side
writes the number of the round ("new"). One outcome of each test is `weak`: the one that surprises
whoever thinks that accesses happen in the order of the program. `allowed_by` are the memory models
that allow it, `needed_by` the protocols of collbench that return wrong data, or break their FIFOs,
where it happens. The two are independent: LL128 needs what no model promises.

Sources: Owens, Sarkar, Sewell, "A better x86 memory model: x86-TSO"; Intel SDM volume 3A, "Memory
Ordering" and "Guaranteed Atomic Operations"; Arm ARM, "Definition of the Armv8 memory model"; PTX
ISA, "Memory Consistency Model" (vector accesses are several scalar ones, in no order).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from collbench.util.errors import unknown

Kind = Literal["cpu", "gpu"]
Shape = Literal["mp", "sb", "lb", "corr", "whole", "lines", "line", "engine"]
Access = Literal["scalar", "vector", "warp", "copy"]
Model = Literal["x86-TSO", "Armv8", "PTX"]

X86, ARM, PTX = "x86-TSO", "Armv8", "PTX"
ALL = ("simple", "ll", "ll128")
_FENCE = "fence.acq_rel.sys"  # of GPUs
# name of a shape -> what its outcomes mean, in the order in which they are counted
OUTCOMES: Mapping[str, tuple[str, ...]] = {
    "mp": ("flag old, data old", "flag old, data new", "flag new, data old", "flag new, data new"),
    "sb": ("both old", "first old", "second old", "both new"),
    "lb": ("both old", "second new", "first new", "both new"),
    "corr": ("old, old", "old, new", "new, old", "new, new"),
    "whole": ("old", "new", "torn"),
}
# shapes that are counted as another one
_COUNTED_AS = {"lines": "mp", "line": "mp", "engine": "mp"}
_WEAK = {
    "mp": "flag new, data old",
    "sb": "both old",
    "lb": "both new",
    "corr": "new, old",
    "whole": "torn",
}
# the outcomes of trials in which the one in question might have come out
_CHANCES = {"mp": (2, 3), "sb": (0, 1, 2, 3), "lb": (1, 2, 3), "corr": (2, 3), "whole": (1, 2)}
# the model that holds for a kind of processor (platform.machine(), in lower case)
MODEL_OF_MACHINE: Mapping[str, Model] = {
    "x86_64": "x86-TSO",
    "amd64": "x86-TSO",
    "aarch64": "Armv8",
    "arm64": "Armv8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Litmus:
    """One test. width: of an access in bytes; warps: how many of a side take part, 0 on processors;
    fence: what stands between the accesses of a side; sides: what each does, in order. proto: whose
    own code it runs, "" for plain accesses.
    """

    name: str
    kind: Kind
    shape: Shape
    width: int
    access: Access
    sides: tuple[str, str]
    fence: str = ""
    warps: int = 0
    allowed_by: frozenset[str] = frozenset()
    needed_by: tuple[str, ...] = ()
    proto: str = ""
    is_reloaded: bool = False

    @property
    def counted_as(self) -> str:
        """The shape whose outcomes it has."""
        return _COUNTED_AS.get(self.shape, self.shape)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """All that can be seen of a cell."""
        return OUTCOMES[self.counted_as]

    @property
    def weak(self) -> str:
        """The outcome that is in question."""
        return _WEAK[self.counted_as]

    @property
    def is_waited(self) -> bool:
        """Whether a side waits for the other, so that all trials may end the same."""
        return self.shape == "engine" or (self.kind == "gpu" and self.shape == "lb")

    def is_allowed(self, outcome: str, model: str) -> bool:
        """Whether a memory model allows an outcome.

        >>> litmus("sb", "cpu").is_allowed("both old", "x86-TSO")
        True
        """
        return outcome != self.weak or model in self.allowed_by


def _cpu_tests() -> Iterable[Litmus]:
    for width in (4, 8, 16, 128):
        access: Access = "scalar" if width <= 8 else "vector"
        yield Litmus(
            name=f"mp-{width}",
            kind="cpu",
            shape="mp",
            width=width,
            access=access,
            sides=("write data; write flag", "read flag; read data"),
            allowed_by=frozenset((ARM,)),
            needed_by=ALL,
        )
    for proto, width in (("simple", 8), ("ll", 4), ("ll128", 120)):
        yield Litmus(
            name=f"mp-{proto}",
            kind="cpu",
            shape="lines",
            width=width,
            access="copy",
            sides=("copy data; set flags", "compare flags; copy data"),
            allowed_by=frozenset((ARM,)),
            needed_by=(proto,),
            proto=proto,
        )
    yield Litmus(
        name="sb",
        kind="cpu",
        shape="sb",
        width=8,
        access="scalar",
        sides=("write x; read y", "write y; read x"),
        allowed_by=frozenset((X86, ARM)),
    )
    yield Litmus(
        name="sb-fence",
        kind="cpu",
        shape="sb",
        width=8,
        access="scalar",
        sides=("write x; lock; read y", "write y; lock; read x"),
        fence="a lock",
        allowed_by=frozenset((ARM,)),
    )
    yield Litmus(
        name="lb",
        kind="cpu",
        shape="lb",
        width=8,
        access="scalar",
        sides=("read x; write y", "read y; write x"),
        allowed_by=frozenset((ARM,)),
        needed_by=ALL,
    )
    yield Litmus(
        name="read-twice",
        kind="cpu",
        shape="corr",
        width=8,
        access="scalar",
        sides=("write x", "read x; read x"),
        needed_by=ALL,
    )
    for width, needed in ((4, ("ll",)), (8, ("simple", "ll128")), (16, ()), (128, ())):
        yield Litmus(
            name=f"whole-{width}",
            kind="cpu",
            shape="whole",
            width=width,
            access="scalar" if width <= 8 else "vector",
            sides=("write x", "read x"),
            allowed_by=frozenset() if width <= 8 else frozenset((X86, ARM)),
            needed_by=needed,
        )


def _gpu_tests() -> Iterable[Litmus]:
    for width in (4, 8, 16):
        for has_fence in (False, True):
            yield Litmus(
                name=f"mp-{width}" + ("-fence" if has_fence else ""),
                kind="gpu",
                shape="mp",
                width=width,
                access="vector" if width == 16 else "scalar",
                sides=(
                    "write data; fence; write flag" if has_fence else "write data; write flag",
                    "acquire flag; read data" if has_fence else "read flag; read data",
                ),
                fence=_FENCE if has_fence else "",
                warps=1,
                allowed_by=frozenset() if has_fence else frozenset((PTX,)),
                needed_by=("simple",) if has_fence else (),
            )
    for has_fence in (False, True):
        fence = "barrier; fence" if has_fence else "barrier"
        yield Litmus(
            name="mp-16-warps" + ("-fence" if has_fence else ""),
            kind="gpu",
            shape="mp",
            width=16,
            access="vector",
            sides=(
                f"one warp writes data; {fence}; another writes the flag",
                ("one warp acquires" if has_fence else "one warp reads")
                + " the flag; barrier; another reads data",
            ),
            fence=_FENCE if has_fence else "",
            warps=2,
            allowed_by=frozenset() if has_fence else frozenset((PTX,)),
            needed_by=("simple",) if has_fence else (),
        )
    yield Litmus(
        name="line-8",
        kind="gpu",
        shape="line",
        width=8,
        access="vector",
        sides=("store_line of data, flag, data, flag", "load_line; each flag beside its data"),
        warps=1,
        allowed_by=frozenset((PTX,)),
        needed_by=("ll",),
    )
    yield Litmus(
        name="line-16",
        kind="gpu",
        shape="line",
        width=16,
        access="vector",
        sides=("store_line", "load_line; the last word is the flag of all"),
        warps=1,
        allowed_by=frozenset((PTX,)),
    )
    for is_reloaded in (False, True):
        yield Litmus(
            name="line-128" + ("-reload" if is_reloaded else ""),
            kind="gpu",
            shape="line",
            width=128,
            access="warp",
            sides=(
                "8 lanes store_line; the last word is the flag",
                "8 lanes load_line; the flag of the last lane"
                + ("; load_line again" if is_reloaded else ""),
            ),
            warps=1,
            allowed_by=frozenset((PTX,)),
            # ll128 reads a line again unless --ll128-reload is off
            needed_by=("ll128",) if is_reloaded else (),
            is_reloaded=is_reloaded,
        )
    for has_fence in (False, True):
        fence = "fence; " if has_fence else ""
        yield Litmus(
            name="sb" + ("-fence" if has_fence else ""),
            kind="gpu",
            shape="sb",
            width=8,
            access="scalar",
            sides=(f"write x; {fence}read y", f"write y; {fence}read x"),
            fence=_FENCE if has_fence else "",
            warps=1,
            allowed_by=frozenset((PTX,)),
        )
    yield Litmus(
        name="lb-warps",
        kind="gpu",
        shape="lb",
        width=16,
        access="vector",
        sides=(
            "one warp load_line x; barrier; another writes the credit y",
            "read the credit y; store_line x",
        ),
        warps=2,
        allowed_by=frozenset((PTX,)),
        needed_by=("ll", "ll128"),
    )
    yield Litmus(
        name="read-again",
        kind="gpu",
        shape="mp",
        width=16,
        access="vector",
        sides=(
            "write data; fence; write flag",
            "read data; acquire flag; read the same data again",
        ),
        fence=_FENCE,
        warps=1,
        needed_by=("simple",),
        is_reloaded=True,
    )
    yield Litmus(
        name="copy-engine",
        kind="gpu",
        shape="engine",
        width=16,
        access="copy",
        sides=(
            "the engine copies data; a kernel behind it sets the flag",
            "acquire the flag; read data",
        ),
        fence=_FENCE,
        warps=1,
        needed_by=("ce",),
    )


TESTS: tuple[Litmus, ...] = (*_cpu_tests(), *_gpu_tests())


def catalogue(kind: str) -> tuple[Litmus, ...]:
    """The tests for CPUs or for GPUs."""
    return tuple(test for test in TESTS if test.kind == kind)


def litmus(name: str, kind: str) -> Litmus:
    """A test by its name. Raises UsageError if there is none."""
    for test in catalogue(kind):
        if test.name == name:
            return test
    raise unknown(f"litmus test for {kind}", name, [test.name for test in catalogue(kind)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LitmusResult:
    """What was seen of a test on a link. counts: by the outcomes of the test. model: that holds
    there. transport: of the connections that the link carries, "" for all of them.
    """

    test: str
    kind: str
    link: str
    model: str
    trials: int
    counts: tuple[int, ...]
    seconds: float
    transport: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError unless the counts are those of the test."""
        counts = self.counts
        if (
            len(counts) != len(self.litmus.outcomes)
            or min(counts) < 0
            or sum(counts) != self.trials
        ):
            raise ValueError(f"{self.test}: counts {counts} of {self.trials} trials")

    @property
    def litmus(self) -> Litmus:
        """Its test. Raises UsageError if there is none of that name."""
        return litmus(self.test, self.kind)

    @property
    def weak_count(self) -> int:
        """How often the outcome in question was seen."""
        return self.counts[self.litmus.outcomes.index(self.litmus.weak)]

    @property
    def chance_count(self) -> int:
        """The trials in which the outcome in question might have come out: where the flag was not
        seen, for example, its data says nothing.
        """
        return sum(self.counts[outcome] for outcome in _CHANCES[self.litmus.counted_as])

    @property
    def broken(self) -> tuple[str, ...]:
        """The protocols whose assumption does not hold."""
        return self.litmus.needed_by if self.weak_count else ()

    @property
    def breaks_model(self) -> bool:
        """Whether an outcome was seen that the model forbids."""
        return bool(self.weak_count) and not self.litmus.is_allowed(self.litmus.weak, self.model)
