"""The libraries whose own collectives are measured as peers of ours, and what of our knobs they can
be forced to, by which variables of the environment.

Only names and numbers: nothing here loads a library. NCCL reads most of these variables once a
process, so each set of them needs new processes. Sources: NCCL's guide (Environment Variables) and
its code of 2.32.
"""

from collections.abc import Mapping
from typing import get_args

from collbench.core.case import Case
from collbench.core.knobs import KNOBS, UNASKED, Knob, NcclBuffers

Variables = tuple[tuple[str, str], ...]  # of the environment, in a fixed order

# Inside one host NCCL's Tree is a chain in ring order: its double binary tree joins hosts. So
# `tree`, which is a tree of GPUs, has no counterpart.
NCCL_ALGOS = {"ring": "Ring", "chain": "Tree"}
NCCL_PROTOS = {"simple": "Simple", "ll": "LL", "ll128": "LL128"}
_BUFFSIZES = {"simple": "NCCL_BUFFSIZE", "ll": "NCCL_LL_BUFFSIZE", "ll128": "NCCL_LL128_BUFFSIZE"}
# the last two would win over the first two
_CHANNELS = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS")
# By library: the values that it has for a knob of ours; none named: any number.
PEERS: dict[str, dict[str, tuple[str, ...]]] = {
    "gloo": {},
    "mpi": {},
    "nccl": {
        "algo": tuple(NCCL_ALGOS),
        "proto": tuple(NCCL_PROTOS),
        "channels": (),
        "buffsize": (),
        "buffers": get_args(NcclBuffers),
    },
    "torch": {"algo": ("oneshot", "twoshot")},
}
# Algorithms of a library's own that its users choose between, with the collectives that they serve.
# They are its own choice too: a sweep measures all of them, unless --algo names one.
OWN_ALGOS: dict[str, dict[str, tuple[str, ...]]] = {
    "torch": dict.fromkeys(PEERS["torch"]["algo"], ("allreduce",))
}
RELEASE_OF_NCCL = "nccl-"  # begins the name of a backend that is a release of NCCL in a file
# What rows name that is no library: our backends, and what other tools measure.
_NO_LIBRARIES = ("cpu", "cuda", "model", "reference", "copies", "nvbandwidth", "p2p-test", "verbs")
# Libraries whose user buffers are in GPU memory where another backend of the sweep runs on GPUs.
BESIDE_GPUS = ("mpi",)
# Those whose user buffers are in host memory: beside them such a library is of use without GPUs.
ON_CPUS = ("cpu", "gloo")


def is_of_libraries(knob: Knob) -> bool:
    """Whether only libraries heed a knob: it forces them to nothing, but says what they are given.

    >>> [knob.name for knob in KNOBS if is_of_libraries(knob)]
    ['buffers']
    """
    return bool(knob.backends) and all(map(is_peer, knob.backends))


def is_peer(backend: str) -> bool:
    """Whether a backend is a library with its own algorithms, or somebody's kernel, whose file a
    machine that reads rows need not have.

    >>> is_peer("nccl"), is_peer("mine"), is_peer("cpu"), is_peer("")
    (True, True, False, False)
    """
    return bool(backend) and backend not in _NO_LIBRARIES


# What the row of a library has that was forced to nothing, besides the algorithm.
OWN_CHOICE = {
    knob.name: UNASKED[knob.name]
    for knob in KNOBS
    if knob.name != "algo" and not is_of_libraries(knob)
}


def is_own_algo(backend: str, algo: str) -> bool:
    """Whether a library has an algorithm without being forced to it.

    >>> is_own_algo("torch", "twoshot"), is_own_algo("nccl", "library"), is_own_algo("nccl", "ring")
    (True, True, False)
    """
    return algo == UNASKED["algo"] or algo in OWN_ALGOS.get(backend, ())


def form_of(backend: str, algo: str, buffers: str) -> str:
    """What tells the own choices of one library apart: the algorithm, or the user buffers.

    >>> form_of("torch", "twoshot", "plain"), form_of("nccl", "library", "window")
    ('twoshot', 'window')
    """
    return algo if backend in OWN_ALGOS else buffers


def library_of(peer: str) -> str:
    """The library that a backend is a release of.

    >>> library_of("nccl-2.32.3"), library_of("mpi")
    ('nccl', 'mpi')
    """
    return "nccl" if peer.startswith(RELEASE_OF_NCCL) else peer


def knobs_of(peer: str) -> Mapping[str, tuple[str, ...]]:
    """The knobs of ours that a library can be forced to, with their values (none: any number)."""
    return PEERS.get(library_of(peer), {})


def forced_by(case: Case) -> Variables:
    """The variables that force a library to do as the case says; nothing if it is its own choice,
    or no library.

    Without a protocol the size is that of every protocol's FIFO, whichever NCCL then takes.

    >>> case = Case(op="allreduce", backend="nccl", algo="chain", proto="ll", ranks=2, size_bytes=8)
    >>> forced_by(case)
    (('NCCL_ALGO', 'Tree'), ('NCCL_PROTO', 'LL'))
    >>> forced_by(Case(op="allreduce", backend="cpu", ranks=2, size_bytes=8))
    ()
    """
    if library_of(case.backend) != "nccl":
        return ()
    variables: list[tuple[str, str]] = []
    if case.algo in NCCL_ALGOS:
        variables.append(("NCCL_ALGO", NCCL_ALGOS[case.algo]))
    if case.proto in NCCL_PROTOS:
        variables.append(("NCCL_PROTO", NCCL_PROTOS[case.proto]))
    if case.channels:
        variables += [(name, str(case.channels)) for name in _CHANNELS]
    if case.buffsize:
        variables += [
            (name, str(case.buffsize))
            for proto, name in _BUFFSIZES.items()
            if case.proto in ("", proto)
        ]
    return tuple(variables)
