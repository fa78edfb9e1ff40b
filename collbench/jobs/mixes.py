"""Jobs made of formulas: what a transformer of P parameters communicates in a step, by the way in
which it is spread over ranks. docs/explanation/mixes.md explains every formula.

    NAME:PARAMETERS[/RANKS]     ddp:7B   fsdp:70B/8   tp:70B/8   moe:7B/8
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from collbench.core.collectives import OpName
from collbench.core.dtypes import DtypeName, RedopName, dtype
from collbench.core.errors import UsageError, unknown
from collbench.jobs.model import Call, Job

RANKS = 8  # where the text names none
HIDDEN_PER_LAYER = 128  # of Llama 7B, 13B and GPT-3: 4096/32, 5120/40, 12288/96
VOCABULARY = 32_000  # of Llama's; of input and output apart
SEQUENCE = 4096  # tokens of a microbatch of one sequence
EXPERTS_A_TOKEN = 2
BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 << 20, 1 << 20  # of PyTorch's DistributedDataParallel
_TEXT = re.compile(r"(\w+):(\d{1,6}(?:\.\d{1,6})?)([KMBT])(?:/(\d{1,6}))?", re.IGNORECASE)
_UNITS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_LEAST, _MOST = 10**6, 10**14  # parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """layers equal layers of layer_count parameters, and the embeddings."""

    layers: int
    hidden: int
    layer_count: int
    embedding_count: int


def transformer(parameters: int) -> Transformer:
    """The decoder of so many parameters: 12 hidden^2 a layer, hidden 128 times the layers.

    >>> model = transformer(7 * 10**9)
    >>> model.layers, model.hidden, model.layer_count, model.embedding_count
    (33, 4224, 203929212, 270336000)
    """
    layers = max(1, round((parameters / (12 * HIDDEN_PER_LAYER**2)) ** (1 / 3)))
    hidden = HIDDEN_PER_LAYER * layers
    embeddings = min(2 * VOCABULARY * hidden, parameters // 4)
    return Transformer(
        layers=layers,
        hidden=hidden,
        layer_count=(parameters - embeddings) // layers,
        embedding_count=embeddings,
    )


def mix(text: str) -> Job:
    """One step of the job that a text names. Raises UsageError.

    >>> [(call.op, call.size_bytes) for call in mix("ddp:10M/4").calls]
    [('allreduce', 1048576), ('allreduce', 26214400), ('allreduce', 12737024)]
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"--mix '{text}' is not NAME:PARAMETERS/RANKS",
            f"for example fsdp:70B/8; names: {', '.join(MIXES)}",
        )
    name, number, unit, ranks = match.groups()
    if name.lower() not in MIXES:
        raise unknown("mix", name, MIXES)
    parameters = int(Decimal(number) * _UNITS[unit.upper()])
    n = int(ranks or RANKS)
    if not _LEAST <= parameters <= _MOST:
        raise UsageError(f"--mix {text}: {parameters} parameters", "give 1M to 100T of them")
    if n < 2:
        raise UsageError(f"--mix {text}: {n} rank: nothing travels", "give 2 ranks or more")
    calls = list(MIXES[name.lower()](transformer(parameters), n))
    return Job(name=text, source="a mix made of formulas", calls=calls, step_calls=len(calls))


def _call(
    op: OpName, count: int, element: DtypeName, n: int, redop: RedopName = "sum", *, blocks: bool
) -> Call:
    """A call that moves so many elements, in blocks padded to an equal number."""
    count = -(-count // n) * n if blocks else count
    return Call(
        op=op, size_bytes=count * dtype(element).item_bytes, dtype=element, redop=redop, ranks=n
    )


def _ddp(model: Transformer, n: int) -> Iterator[Call]:
    """Data parallel: gradients in float32, in buckets."""
    yield from _buckets(model.layers * model.layer_count + model.embedding_count, "float32", n)


def _buckets(count: int, element: DtypeName, n: int) -> Iterator[Call]:
    """An allreduce of each bucket of gradients, the first one smaller."""
    width, most = dtype(element).item_bytes, FIRST_BUCKET_BYTES
    while count > 0:
        size = min(count, most // width)
        yield _call("allreduce", size, element, n, blocks=False)
        count, most = count - size, BUCKET_BYTES


def _fsdp(model: Transformer, n: int) -> Iterator[Call]:
    """Fully sharded: each layer is gathered forward and backward, its gradients are scattered; the
    embeddings stay gathered from forward to backward.
    """
    units = model.layers * [model.layer_count]
    for count in (model.embedding_count, *units, *units):
        yield _call("allgather", count, "bfloat16", n, blocks=True)
    for count in (*units, model.embedding_count):
        yield _call("reducescatter", count, "bfloat16", n, "avg", blocks=True)


def _tp(model: Transformer, n: int) -> Iterator[Call]:
    """Tensor parallel: the activations of attention and of the MLP, forward and backward."""
    for _ in range(4 * model.layers):
        yield _call("allreduce", SEQUENCE * model.hidden, "bfloat16", n, blocks=False)


def _moe(model: Transformer, n: int) -> Iterator[Call]:
    """Expert parallel: tokens go to their experts and back, forward and backward; the gradients of
    attention and embeddings, which all ranks have, in buckets.
    """
    tokens = SEQUENCE * EXPERTS_A_TOKEN * model.hidden
    for _ in range(4 * model.layers):
        yield _call("alltoall", tokens, "bfloat16", n, blocks=True)
    dense = model.layers * 4 * model.hidden**2 + model.embedding_count
    yield from _buckets(dense, "bfloat16", n)


MIXES: dict[str, Callable[[Transformer, int], Iterator[Call]]] = {
    "ddp": _ddp,
    "fsdp": _fsdp,
    "tp": _tp,
    "moe": _moe,
}
