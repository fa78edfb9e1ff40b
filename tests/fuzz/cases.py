"""Cases by seed and number: a command line, its files and its environment, each a little wrong.

No case measures: sweeps are dry runs, topologies come from files. Its cost is bounded by its own
construction: few ranks, few sizes, small files.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from random import Random

import click

from tests.fuzz import corpus, mutate
from tests.fuzz.corpus import Sample

PRESET_BASE = ("--sizes", "1K", "--ranks", "2", "--algo", "ring")
SWEEP = ("sweep", "--dry-run")
_MODEL = (*SWEEP, "--backend", "model")
_FILE_OPTIONS = frozenset(mutate.values("file_options"))
# names of files; those with a slash in front are the only ones outside the folder of a case
FILE_NAMES = mutate.values("file_names")
_VIEWS = ("--tree", "--rates", "--p2p", "--links", "--rings", "--json", "--xml", "--svg -")
_VARIABLES = mutate.values("variables")
# of a pipe, of a terminal with another language, of LANG=C
_ENCODINGS = ("utf-8", "utf-8", "utf-8", "latin-1", "ascii")
_EXAMPLE = re.compile(r"for example (\S+?)[,;.:)]*(?:\s|$)")
# what costs time that nobody bounds is kept small
_COSTLY = ("--ranks", "-g", "--hosts", "--channels", "--slots", "--slices")
_MOST_RANKS, _REFUSED_RANKS = 9, 4096
_HOSTS = re.compile(r"^((?:hosts|count)\s*=\s*)(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is run in a folder of its own: args, files by name, variables, the streams' encoding."""

    name: str
    args: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"


# a command line with what its folder has
Made = tuple[Sequence[str], dict[str, bytes]]


def case(seed: int, number: int) -> Case:
    """The case of a number; the same one in every run."""
    random = Random(f"{seed} {number}")
    kinds, weights = zip(*_KINDS, strict=True)
    (kind,) = random.choices(kinds, weights)
    args, files = kind(random)
    return Case(
        name=kind.__name__.removeprefix("_of_"),
        args=_tame(args),
        files=files,
        variables=_variables(random) if kind is _of_environment else {},
        encoding=random.choice(_ENCODINGS),
    )


def _params(command: str) -> list[click.Parameter]:
    loaded: click.Command = import_module(f"collbench.cli.{command}").command
    return loaded.params


def _usual(param: click.Parameter) -> list[str]:
    """Values that an option takes: its choices, or the example in its help."""
    choices = getattr(param.type, "_choices", ()) or getattr(param.type, "choices", ())
    example = _EXAMPLE.search(getattr(param, "help", None) or "")
    return [*map(str, choices), *([example[1]] if example else [])] or ["1"]


def _value(random: Random, param: click.Parameter) -> str:
    if param.name in _FILE_OPTIONS:
        return random.choice(FILE_NAMES)
    usual = _usual(param)
    match random.randrange(8):
        case 0 | 1 | 2:
            return random.choice(usual)
        case 3:
            return ",".join(random.sample(usual, min(len(usual), 2)))
        case 4:
            return f"{random.choice(usual)},{mutate.nasty(random)}"
        case 5:
            return mutate.text(random, random.choice(usual))[:9000]
        case _:
            return mutate.nasty(random)


def _option(random: Random, param: click.Parameter) -> list[str]:
    """An option and its value, sometimes with a misspelled name or joined by `=`."""
    name = random.choice(param.opts)
    if random.random() < 0.05:
        name = "-" + mutate.text(random, name)[:99]
    if getattr(param, "is_flag", False) and random.random() < 0.9:
        return [name]
    value = _value(random, param)
    return [f"{name}={value}"] if random.random() < 0.2 else [name, value]


def _options(random: Random, command: str, most: int = 3) -> list[str]:
    params = [param for param in _params(command) if isinstance(param, click.Option)]
    chosen = random.sample(params, random.randint(1, most))
    return [
        word
        for param in chosen
        if param.name not in ("is_measured", "soak")
        for word in _option(random, param)
    ]


def _argument(word: str) -> str:
    """A word as an argument can be: no NUL; no file outside the folder but those that we chose."""
    word = word.replace("\0", "")
    if word.startswith("/") and word not in FILE_NAMES:
        word = word.lstrip("/")
    return word.replace("=/", "=")


def _tame(words: Sequence[str]) -> tuple[str, ...]:
    """The command line without what costs minutes: many ranks, steps that make many sizes."""
    tamed: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        name, _, value = word.rpartition("=")
        if (name or before) in _COSTLY:
            value = re.sub(
                r"\d+",
                lambda found: (
                    found[0]
                    if len(found[0]) > 9 or not _MOST_RANKS < int(found[0]) <= _REFUSED_RANKS
                    else str(int(found[0]) % _MOST_RANKS)
                ),
                value,
            )
        if (name or before) in ("-f", "--stepfactor", "-i", "--stepbytes"):
            value = value if value in (*mutate.NUMBERS, *mutate.TEXTS) else "4"
            value = "256M" if value in ("1", "3", "1K", "1.5K", "4097", "+5") else value
        tamed.append(f"{name}={value}" if name else value)
    return tuple(map(_argument, tamed))


def _of_options(random: Random) -> Made:
    """Options of a command beside a base that is cheap."""
    command = random.choice(("sweep", "sweep", "sweep", "topo", "compare", "algos", "overlap"))
    words = _options(random, command)
    flags = {word.partition("=")[0] for word in words}
    files = {}
    if command == "sweep":
        base = [*SWEEP]
        for flag, value in (("--algo", "ring"), ("--ranks", "2"), ("--backend", "model")):
            base += [flag, value] if flag not in flags and random.random() < 0.95 else []
        is_range = flags & {"-b", "-e", "-f", "-i", "--minbytes", "--maxbytes", "--sizes"}
        base += [] if is_range else ["--sizes", "1K"]
    elif command == "topo":
        base = ["topo", "--machine", random.choice(("dgx-1v", "pcie-4", "cpu-2"))]
    elif command == "compare":
        sample = random.choice(corpus.rows())
        base, files = ["compare", "rows.csv"], {"rows.csv": sample.text.encode()}
    elif command == "overlap":
        base = ["overlap", "--gpus", mutate.nasty(random)] if random.random() < 0.5 else ["overlap"]
        words = [*words, "--sizes", "x"]  # refused at the latest where there are GPUs
    else:
        base = ["algos", random.choice(("ring", "tree", mutate.nasty(random)))]
    if random.random() < 0.03:
        base = [random.choice((*TOP_LEVEL, mutate.nasty(random)))]
    return [*base, *words], files


TOP_LEVEL = ("--help", "--version", "-h", "", "sweep ", "Sweep")


def _of_sizes(random: Random) -> Made:
    """A value that is no size, in every option that takes a size or a number."""
    number = random.choice(mutate.NUMBERS)
    if random.random() < 0.3:
        number = mutate.text(random, number)[:9000]
    name, command = random.choice(_sized())
    base = {
        "sweep": [*_MODEL, "--algo", "ring"],
        "algos": ["algos", "ring"],
        "overlap": ["overlap", "--sizes", "x"],
        "compare": ["compare", "rows.csv"],
    }[command]
    files = {"rows.csv": corpus.rows()[0].text.encode()} if command == "compare" else {}
    return [*base, name, number], files


def _sized() -> list[tuple[str, str]]:
    return [
        (param.opts[-1], command)
        for command in ("sweep", "algos", "overlap", "compare")
        for param in _params(command)
        if isinstance(param, click.Option)
        and not param.is_flag
        and param.name not in _FILE_OPTIONS | {"soak"}
        and not isinstance(param.type, click.Choice)
    ]


def _changed(random: Random, samples: tuple[Sample, ...]) -> tuple[bytes, str]:
    sample = random.choice(samples)
    if random.random() < 0.02:  # another format altogether
        sample = random.choice((*corpus.rows(), *corpus.topologies(), *corpus.machines()))
    return sample.changed(random), sample.ending


def _of_csv(random: Random) -> Made:
    """Rows that are read: by compare, or before a sweep goes on."""
    rows = _changed(random, corpus.rows())[0]
    files = {"rows.csv": rows}
    match random.randrange(10):
        case 0 | 1:
            args = [*_MODEL, *PRESET_BASE, "--csv", "rows.csv", "--resume"]
        case 2 | 3:
            files["base.csv"] = random.choice(corpus.rows()).text.encode()
            args = ["compare", *random.sample(sorted(files), 2), "--force"]
        case 4 | 5:
            args = ["compare", "rows.csv", *_options(random, "compare", 2)]
        case 6:
            args = ["compare", "rows.csv", *random.choice((["--all"], ["--env"]))]
        case 7 if random.random() < 0.2:
            args = ["compare", "rows.csv", "--html", random.choice(("-", "page.html"))]
        case 7 if random.random() < 0.03:
            args = ["compare", "rows.csv", "--plot", "plot.svg"]
        case _:
            args = ["compare", "rows.csv"]
    return args, files


def _of_foreign_results(random: Random) -> Made:
    """What other tools wrote."""
    data, ending = _changed(random, corpus.foreign_results())
    name = f"{random.choice(('allreduce', 'results'))}{ending}"
    more = _options(random, "compare", 1) if random.random() < 0.2 else []
    return ["compare", name, *more], {name: data}


def _of_log(random: Random) -> Made:
    """What NCCL printed, whole, and where its job hangs."""
    data, ending = _changed(random, corpus.logs())
    args = ["log", f"job{ending}", *random.choice(([], [], ["--hang"], ["--json", "-"]))]
    args += _options(random, "log", 1) if random.random() < 0.2 else []
    return args, {f"job{ending}": data}


def _of_job(random: Random) -> Made:
    """What a job communicates, its times by the model of a machine."""
    data, ending = _changed(random, corpus.logs())
    args = ("replay", f"job{ending}", "--machine", "hgx-h100", "--dry-run")
    return args, {f"job{ending}": data}


def _of_topology(random: Random) -> Made:
    """A file that describes links, shown or modelled."""
    data, ending = _changed(random, corpus.topologies())
    name = f"machine{ending}"
    if random.random() < 0.15:
        args = [*_MODEL, *PRESET_BASE, "--machine", name]
    else:
        views = random.sample(_VIEWS, random.choice((0, 1, 1, 2)))
        args = ["topo", "--from", name, *" ".join(views).split()]
    return args, {name: data}


def _of_program(random: Random) -> Made:
    """An algorithm in a file: proved and drawn, written, or planned."""
    data, ending = _changed(random, corpus.programs())
    name = f"program{ending}"
    args = random.choice(
        (("algos", name), ("algos", name), (*_MODEL, "--sizes", "1K", "--algo", name))
    )
    return args, {name: data}


def _of_machine(random: Random) -> Made:
    """A profile of a machine."""
    data, _ = _changed(random, corpus.machines())
    text = data.decode(errors="surrogateescape")
    few = _HOSTS.sub(
        lambda found: found[1] + (found[2] if len(found[2]) > 4 else str(int(found[2]) % 73)), text
    )
    files = {"machine.toml": few.encode(errors="surrogateescape")}
    if random.random() < 0.4:
        args = [*_MODEL, *PRESET_BASE, "--machine", "machine.toml"]
    else:
        views = random.sample(_VIEWS, random.choice((0, 1)))
        args = ["topo", "--machine", "machine.toml", *" ".join(views).split()]
    return args, files


def _of_preset(random: Random) -> Made:
    """Options from a file; those on the command line keep it small."""
    data, _ = _changed(random, corpus.presets())
    args = (*_MODEL, *PRESET_BASE, "--preset", "preset.toml")
    return args, {"preset.toml": data}


def _of_environment(random: Random) -> Made:
    """Variables of the environment: see _variables."""
    args = random.choice(
        (
            ("algos", "ring", "--op", "allreduce"),
            ("topo", "--machine", "pcie-4"),
            ("topo", "--machine", "pcie-4", "--rates", "--rings"),
            ("compare", "rows.csv"),
            (*_MODEL, *PRESET_BASE),
            (*SWEEP, "--backend", "cpu", *PRESET_BASE),
            (*SWEEP, "--backend", "nccl", "--sizes", "1K"),
            ("sweep", "--help"),
        )
    )
    return args, {"rows.csv": corpus.rows()[0].text.encode()}


def _variables(random: Random) -> dict[str, str]:
    return {
        name: random.choice(("0", "1", "2", mutate.nasty(random), mutate.nasty(random)))
        for name in random.sample(_VARIABLES, random.randint(1, 3))
    }


_KINDS: tuple[tuple[Callable[[Random], Made], int], ...] = (
    (_of_options, 24),
    (_of_sizes, 10),
    (_of_csv, 20),
    (_of_foreign_results, 12),
    (_of_log, 8),
    (_of_job, 3),
    (_of_topology, 14),
    (_of_machine, 8),
    (_of_program, 12),
    (_of_preset, 6),
    (_of_environment, 6),
)
