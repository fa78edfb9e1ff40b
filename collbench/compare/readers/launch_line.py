"""What the line that started a tool tells: how many ranks, and which settings of NCCL.

Launchers write the number of ranks in different ways, and the same letter means something else to
each, and to what stands between launcher and program: `nice -n 10` starts no ten ranks.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

_PER_NODE = ("--ntasks-per-node", "--tasks-per-node", "--npernode", "-npernode")
_NODES = ("-N", "--nodes", "--nnodes")
_TOTAL = ("-n", "-np", "--np", "--n", "--ntasks")
# which options of a launcher are the ranks, or the ranks of each node or resource set, and how many
# nodes or sets there are
_PLAIN = {"total": _TOTAL, "each": (), "sets": ()}
_SLURM = {"total": ("-n", "--ntasks"), "each": _PER_NODE, "sets": _NODES}
_LAUNCHERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(
        (
            *("mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.mpt", "mpiexec.slurm", "mpirun.mpich"),
            *("mpirun_rsh", "mpirun-mpich", "orterun", "prterun", "prun", "horovodrun", "aprun"),
            *("ibrun", "ccc_mprun", "mpirun.openmpi", "mpiexec.openmpi", "mpiexec.mpich"),
        ),
        _PLAIN,
    ),
    "srun": _SLURM,
    "yhrun": _SLURM,
    "flux": {"total": ("-n", "--ntasks"), "each": ("--tasks-per-node",), "sets": _NODES},
    "jsrun": {"total": ("-p", "--np"), "each": ("-a", "--tasks_per_rs"), "sets": ("-n", "--nrs")},
    "lrun": {"total": ("-n", "-p"), "each": ("-T",), "sets": ("-N",)},
}
_ONE_EACH = ("jsrun",)  # launchers that start one rank of a set unless they are told
# what starts a program in its turn, with options of its own
_WRAPPERS = frozenset(
    (
        *("nice", "numactl", "taskset", "env", "bash", "sh", "time", "timeout", "stdbuf", "chrt"),
        *("singularity", "apptainer", "docker", "podman", "enroot", "strace", "nsys", "ncu"),
        *("python", "python3", "likwid-pin", "ionice"),
    )
)
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*)(?:=(.*))?\Z")
_ATTACHED = re.compile(r"(-[A-Za-z])=?(\d{1,7})\Z")
_COUNT = re.compile(r"\d{1,7}\Z")
_SETTING = re.compile(r"\b(NCCL_[A-Z0-9_]{1,40})=(\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s,;]{1,200})")
_EXPORT = re.compile(r"\bexport\s+NCCL_")
_REDIRECTED = re.compile(r"\s*(?:\d?>|\||&|\btee\b).*")
# of nccl-tests and OSU: sizes, lengths of the measurement, files; no other time comes of them
_MEASURING = re.compile(
    r"\s--?(?:b|e|f|i|n|w|N|c|J|m|x|minbytes|maxbytes|stepfactor|stepbytes|iters|warmup_iters"
    r"|check|run_cycles|output_file|message-size|iterations|warmup)[= ]?\S+"
)


def launched_ranks(line: str) -> int | None:
    """How many ranks a command line starts; 0 if it does not tell, None if it has no launcher.

    >>> [
    ...     launched_ranks(line)
    ...     for line in (
    ...         "mpirun -np 4 numactl -N 0 ./osu_bcast",
    ...         "jsrun -n 2 -a 4 -c 4 ./osu_bcast",
    ...         "srun -N2 --ntasks-per-node=8 nice -n 10 ./osu_bcast",
    ...         "mpirun ./osu_bcast -n 3",
    ...         "nice -n 10 ./osu_bcast",
    ...     )
    ... ]
    [4, 8, 16, 0, None]
    """
    words = line.replace("\\", " ").split()
    for place, word in enumerate(words):
        name = word.rpartition("/")[2].lstrip("$(`'\"")
        if name in _LAUNCHERS:
            parts = [_ranks_of_part(name, part) for part in _parts(words[place + 1 :])]
            return sum(parts) if all(parts) else 0
    return None


def _parts(words: Sequence[str]) -> Iterator[list[str]]:
    """The options before each program of a launch; a colon separates several."""
    part: list[str] = []
    is_over = False
    for word in words:
        if word == ":":
            yield part
            part, is_over = [], False
            continue
        is_over = is_over or word.rpartition("/")[2] in _WRAPPERS
        is_over = is_over or "osu_" in word or "_perf" in word
        if not is_over:
            part.append(word)
    yield part


def _ranks_of_part(name: str, words: Sequence[str]) -> int:
    counts = dict(_counts(words))
    total, each, sets = (
        next((counts[option] for option in _LAUNCHERS[name][kind] if option in counts), 0)
        for kind in ("total", "each", "sets")
    )
    return total or sets * (each or (1 if name in _ONE_EACH else 0))


def _counts(words: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Options with a whole number, last first: of an option given twice, the first counts."""
    pairs = []
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if match := _ATTACHED.match(word):
            pairs.append((match[1], match[2]))
        elif match := _OPTION.match(word):
            pairs.append((match[1], following if match[2] is None else match[2]))
    return ((option, int(value)) for option, value in reversed(pairs) if _COUNT.match(value))


def settings_in(line: str) -> dict[str, str]:
    """NCCL's variables that a command line sets.

    >>> settings_in("mpirun -x NCCL_ALGO=Ring -np 2 ./all_reduce_perf")
    {'NCCL_ALGO': 'Ring'}
    """
    return {name: value.strip("\"'") for name, value in _SETTING.findall(line)}


def is_export(line: str) -> bool:
    """Whether a line sets variables for all that follows."""
    return _EXPORT.search(line) is not None


def conditions_of_command(line: str, program: str) -> str:
    """What a command line says but for sizes, lengths of the measurement, and files: two runs of
    the same line measured the same.

    >>> conditions_of_command("+ mpirun -np 2 /opt/all_reduce_perf -b 8 -R 1 | tee x", "all_reduce")
    'mpirun -np 2 all_reduce -R 1'
    """
    before, _, after = line.partition(program)
    words = before.lstrip("$+># ").split()
    if words and words[-1].endswith("/"):
        words.pop()
    elif words and "/" in words[-1]:
        words[-1] = words[-1].rpartition("/")[2]
    after = _REDIRECTED.sub("", " " + after.partition(" ")[2])
    return " ".join([*words, program, *_MEASURING.sub("", after).split()])
