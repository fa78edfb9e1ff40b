"""PyTorch's names of collectives and of element types, and what its counts of elements mean."""

from collections.abc import Sequence

from collbench.core.collectives import OPS, OpName, collective
from collbench.core.dtypes import ALIASES, DTYPES, DtypeName, dtype
from collbench.jobs.model import Call

# without underscores, and without what names a variant
_OPS: dict[str, OpName] = {op: op for op in OPS if op != "sendrecv"}
_OPS |= {"alltoallv": "alltoall", "send": "sendrecv"}
_VARIANTS = ("base", "coalesced", "intotensor", "tensor", "out", "single", "oop", "sparse")
# what carries no data of a program, or is the other side of a send
SILENT = ("recv", "barrier", "allreducebarrier", "wait", "init", "coalesced", "startcoalescing",
          "endcoalescing")  # fmt: skip
_DTYPES: dict[str, DtypeName] = {one: one for one in DTYPES} | ALIASES
_DTYPES |= {"long": "int64", "byte": "uint8", "bool": "uint8"}


def plain_name(name: str) -> str:
    """A collective's name without its library, its underscores and its variant.

    >>> plain_name("nccl:_all_gather_base"), plain_name("all_to_allv"), plain_name("send 0->1")
    ('allgather', 'alltoallv', 'send')
    """
    words = name.rpartition(":")[2].split()
    text = words[0].replace("_", "").lower() if words else ""
    for variant in _VARIANTS * 2:
        if text != variant:
            text = text.removesuffix(variant)
    return text


def op_of(name: str) -> OpName | None:
    """The collective of a name; None of what is none of ours."""
    return _OPS.get(plain_name(name))


def dtype_of(name: str) -> DtypeName | None:
    """The element type of a name; None of one that we do not have.

    >>> dtype_of("BFloat16"), dtype_of("torch.float32"), dtype_of("ComplexFloat")
    ('bfloat16', 'float32', None)
    """
    return _DTYPES.get(name.lower().removeprefix("torch."))


def size_of(op: OpName, in_count: int, out_count: int, ranks: int) -> int:
    """The elements of S of a call with so many elements of input and output on its rank.

    >>> size_of("allgather", 100, 400, 4), size_of("reducescatter", 400, 100, 4)
    (400, 400)
    """
    what = collective(op)
    if what.inputs[0] == "n":
        return in_count or out_count * ranks
    if what.outputs[0] == "n":
        return out_count if out_count > in_count else in_count * ranks
    return max(in_count, out_count)


def call_of(
    op: OpName,
    in_count: int,
    out_count: int,
    element: DtypeName,
    ranks: int,
    *,
    group: str = "",
    start_us: float | None = None,
    duration_us: float | None = None,
    in_splits: Sequence[int] = (),
    out_splits: Sequence[int] = (),
) -> Call:
    """A call of one rank; the splits are those of an uneven exchange, as far as the rank knows."""
    skew = load = 1.0
    if op == "alltoall" and (blocks := [*in_splits, *out_splits]) and sum(blocks):
        skew = max(blocks) * len(blocks) / sum(blocks)
        sent, received = sum(in_splits) or in_count, sum(out_splits) or out_count
        load = 2 * max(sent, received) / (sent + received)
    return Call(
        op=op,
        size_bytes=size_of(op, in_count, out_count, ranks) * dtype(element).item_bytes,
        dtype=element,
        ranks=2 if op == "sendrecv" else ranks,
        group=group,
        start_us=start_us,
        duration_us=duration_us,
        skew=skew,
        load=load,
    )


def whole(value: object) -> int:
    """A count of a file; 0 of what is none."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 19 else 0
    is_count = isinstance(value, int | float) and 0 <= value < 2**53
    return int(value) if is_count else 0  # type: ignore[call-overload]


def numbers(value: object) -> list[int]:
    """A list of counts, or the text of one, which PyTorch may have cut.

    >>> numbers("[3, 4, ...]"), numbers([1, 2])
    ([3, 4], [1, 2])
    """
    if isinstance(value, str):
        value = value.strip("[] ").split(",")
    return (
        [whole(str(one).strip()) for one in value if str(one).strip().isdigit()]
        if isinstance(value, list)
        else []
    )
