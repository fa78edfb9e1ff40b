"""Write what is generated in the documents: `python -m docs.generate`, or some files of it by their
paths.

These are the reference pages, the drawing of the house, the completion scripts, the
pictures, and the output of every command block that is run. tests/docs holds all but the pictures
current.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import textwrap
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from collbench.bench import overlap
from collbench.cli import cli
from collbench.core import catalog
from collbench.core.distribution import Histogram
from collbench.core.record import COLUMNS, KEY, SCHEMA, Record
from collbench.doctor.check import check, description, identifiers
from collbench.machine.settings.table import Contradiction, Variable, settings_files
from collbench.machine.topology import machines
from collbench.planning.price import constants
from docs.blocks import ROOT, filled, pages
from docs.man import codes, commands, options_of, paragraphs_of

HOUSE_WIDTH = 60  # characters of the drawing
NOTICE = "<!-- Made by `python -m docs.generate`; edit the source that it reads. -->\n"
SHELLS = {"bash": "collbench", "zsh": "_collbench", "fish": "collbench.fish"}
# Meanings of the columns that are no options of `sweep`.
MEANINGS = {
    "algo": "the algorithm; `library` for a library's own choice; of `torch` also `oneshot` and "
    "`twoshot`, its own in symmetric memory",
    "buffers": "the user buffers that NCCL worked on: `plain` (cudaMalloc), `registered` "
    "(ncclMemAlloc, ncclCommRegister) or `window` (ncclMemAlloc, symmetric window); of MPI `gpu` "
    "where they were in GPU memory; else `plain`",
    "proto": "the protocol; empty for a library's own choice",
    "transport": "what carried the data: p2p, shm, net, ce, or two of them (`shm+net`)",
    "channels": "channels as used; 0 where a library chose",
    "ctas": "thread blocks (CTAs) of a launch; 0 without a GPU, and where a library chose",
    "op": "the collective",
    "backend": "who ran it",
    "dtype": "the element type",
    "redop": "the reduction",
    "root": "the root of a rooted collective",
    "placement": "`out` of place, or `in` place",
    "skew": "of unequal blocks, the formula of their sizes, or the name of the file that has them",
    "groups": "the groups of ranks that had a collective each at the same time; empty for one",
    "mix": "the operations of one grouped launch; `op` is then the first, and `size_bytes` the sum",
    "imbalance": "of unequal blocks, what the busiest rank must send or receive over what it would"
    " with equal blocks (see [how](../how-to/uneven-blocks.md))",
    "alone_us": "of launches at once, what the slowest rank takes for all of its own one after the"
    " other (see [how](../how-to/several-at-once.md))",
    "over_alone": "`time_us` over `alone_us`: what being together costs",
    "group": "who the ranks are: `local` (one process started them) or `mpi` (a launcher did)",
    "ranks": "how many ranks",
    "hosts": "on how many hosts",
    "size_bytes": "S in bytes, as measured (see [busbw](../explanation/busbw.md))",
    "count": "elements of one block; of unequal ones the mean, of a `mix` 0",
    "time_us": "the median of the repeats",
    "time_low_us": "the lower end of its interval",
    "time_high_us": "the upper end of its interval",
    "repeats": "how many repeats",
    "repeat_times_us": "the time of each repeat, with `;` between them",
    "iters": "timed iterations in each repeat",
    "p50_us": "of single launches, the time that half of them do not pass; this and the next four"
    " are empty without `--distribution` (see [how](../how-to/distribution.md))",
    "p99_us": "the time that 99 % do not pass; empty for fewer than 100 launches",
    "p999_us": "the time that 99.9 % do not pass; empty for fewer than 1000 launches",
    "max_us": "the longest",
    "histogram": "`bin:launches` with `;` between them; bin k begins at 2^(k/8) us",
    "algbw_gbs": "S / time in decimal GB/s",
    "busbw_gbs": "algbw times the factor of the collective, and times `imbalance`",
    "ceiling_gbs": "the bus bandwidth that the links allow this schedule and protocol, at the best"
    " rate that was measured of them (see [ceilings](../explanation/ceilings.md)); empty if the"
    " links are not known",
    "percent": "how much of the ceiling was reached; by the repeats it lies between `percent` x"
    " `time_us` / `time_high_us` and `percent` x `time_us` / `time_low_us`",
    "limit": "what sets the ceiling: the engine that moves the bytes, stores or copy engines, and"
    " the link",
    "floor_us": "the least time that this launch can take, whoever runs it (see"
    " [floors](../explanation/floors.md)); empty if it is not known",
    "of_floor": "`floor_us` over `time_us`, in percent",
    "wire_bytes": "bytes that all counted links sent in a launch; this and the next two are empty"
    " without `--wire` (see [how](../explanation/wire-ledger.md))",
    "wire_expected": "what the schedule must send over them; empty for a library",
    "wire_foreign": "what they sent or, if that is more, received beyond it; below 0 where they"
    " carried less",
    "wrong": "wrong elements; empty if results were not compared",
    "status": "`ok`, `wrong`, `impossible` (faster than can be), `waived` or `error`",
    "reason": "why the status is not `ok`",
    "chosen": "what decided the algorithm and the protocol: `asked`, `tuned` (a tuning file) or"
    " `priced` (the lowest price); empty for a library",
    "notes": "the conditions of the measurement; see [below](#notes)",
    "run": "the run that the row belongs to",
    "host": "the host of rank 0",
    "device": "the GPUs or CPUs",
    "versions": "versions of what took part, and variables of the environment that change it",
    "timestamp": "when the row was written (UTC)",
    "schema": "the number of these columns' form",
}
OVERLAP_MEANINGS = {
    "gemm": "rows and columns of the matrices; on CPUs 0, and times are of a turn of computing",
    "priority": "priority of the stream that communicates",
    "gemm_us": "time of one matrix multiplication alone",
    "mb_per_lost_ms": "megabytes moved (S a launch) for a millisecond of computing lost; empty "
    "where the loss is within the noise",
    "noise_percent": "by how much the repeats of the matrix multiplications alone differ",
    "memory_slower": "time of a copy in memory during launches, over its time alone",
    "memory_noise_percent": "by how much the repeats of the copies alone differ",
    "slower": "time of a launch during the matrix multiplications, over `time_us`",
    "gemm_slower": "time of a matrix multiplication during launches, over its time alone",
}
NOTES = {
    "auto": "the tool itself would choose this for this size",
    "hot": "`--hot`: the same buffers in every launch",
    "in-cache": "the rotated buffers still fit the last-level cache",
    "pipelined": "launches of a rooted collective overlap",
    "no-floor": "the least launch could not be measured here",
    "isolated": "`--isolate`: each GPU launch was timed alone",
    "order-": "`--launch-order same` or `crossed`: in which order a rank launched what it had",
    "shared-gpu": "ranks share a GPU (`--gpus 0,0`): the time is right and says nothing of links",
    "stream": "`--launch stream`: launches were queued one by one, not in a graph",
    "net-host": "slots of messages were in host memory",
    "net-device": "slots of messages were in GPU memory",
    "net-threads-N": "N threads of a rank received large messages",
    "throttled:...": "NVML reported reduced clocks during a repeat, with the reason",
    "clocks-low": "clocks were below their maximum at a repeat",
    "other-processes": "other processes used a GPU at a repeat",
    "other-processes:N": "other processes had or waited for N cores, and left too few to the ranks",
    "unchecked": "`-c 0`: results were not compared",
    "blocking": "`-z 1`: a barrier followed every iteration",
    "aggregate-M": "`-m M`: M launches counted as one iteration",
    "maybe-registered": "NCCL may have registered `plain` buffers while it captured a graph",
    "processes": "measured in processes of their own: NCCL reads its settings once, and ranks of "
    "PyTorch cannot be threads",
    "copied": "the library works in place: the time includes a copy to the output before it",
    "host-clock": "calls on GPU memory that block, timed by the clock of the host",
    "noisy": "most repeats disagree, or other processes took cores of ranks",
    "far-below-ceiling": "under 60 % of the ceiling, at a size where latency does not explain it",
    "modelled": "not measured: priced on a described machine",
}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines: list[Sequence[str]] = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def command_page() -> str:
    """docs/reference/commands.md."""
    parts = [NOTICE, "# Commands and options\n"]
    for name, command, context in commands():
        paragraphs, examples = paragraphs_of(command)
        usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
        parts += [
            f"\n## collbench {name}\n\n```text\n{usage}\n```\n\n",
            "\n\n".join(paragraphs),
            "\n\n```sh needs=GPUs\n"
            + "\n".join(map(str.strip, examples.splitlines()))
            + "\n```\n\n",
            _table(
                ("option", "meaning"),
                [(f"`{flags}`", text) for flags, text in options_of(command, context)],
            ),
        ]
    return "".join(parts)


def _option_meanings() -> dict[str, str]:
    """What every option of `sweep` is, by its name in a row, without its default."""
    command = cli.get_command(click.Context(cli), "sweep")
    assert command is not None
    return {
        param.name or "": (param.help or "").partition(" Default:")[0]
        for param in command.params
        if isinstance(param, click.Option)
    }


def _kind(annotation: object) -> str:
    if annotation == Histogram:
        return "text"
    kinds = {int: "whole number", float: "number", tuple: "numbers"}
    names = {typing.get_origin(annotation) or annotation, *typing.get_args(annotation)}
    return next((text for kind, text in kinds.items() if kind in names), "text")


def _beside(name: str) -> str:
    """The meaning of a column of `overlap` that is another column's value during the overlap."""
    for ending, what in (("gemm_", "one matrix multiplication"), ("", "a launch")):
        if name.startswith(ending) and name.endswith("_us"):
            return f"time of {what} while both run"
    return "bus bandwidth of a launch while both run"


def column_page() -> str:
    """docs/reference/csv.md."""
    meanings = {**_option_meanings(), **MEANINGS}
    hints = typing.get_type_hints(Record)
    rows = [(f"`{name}`", _kind(hints[name]), meanings[name]) for name in COLUMNS]
    more = overlap.OVERLAP_COLUMNS[len(COLUMNS) :]
    return "".join(
        (
            NOTICE,
            "# The CSV file\n\n",
            "`collbench sweep --csv FILE` appends each row as it is measured; `--csv -` writes to"
            "\nstdout. One row is one configuration.",
            f" This is schema {SCHEMA}; the column `schema` says so.\n\n",
            f"The first {len(KEY)} columns, up to `{KEY[-1]}`, are the independent variables: two"
            " rows\nthat agree in them measured the same thing. Knobs appear as they were used.\n",
            "\n## Columns of `sweep`\n\n",
            _table(("column", "kind", "meaning"), rows),
            "\n## Notes\n\nThe column `notes` lists the conditions of a row.\n\n",
            _table(("note", "meaning"), [(f"`{name}`", text) for name, text in NOTES.items()]),
            "\n## Columns that `overlap` adds\n\n`collbench overlap --csv FILE` writes the columns"
            " of `sweep`, of the launches alone, and these.\n`compare` does not read such a file,"
            " because launches that share a GPU with other work are not a\nsweep.\n\n",
            _table(
                ("column", "meaning"),
                [(f"`{name}`", OVERLAP_MEANINGS.get(name) or _beside(name)) for name in more],
            ),
        )
    )


def exit_code_page() -> str:
    """docs/reference/exit-codes.md."""
    table = _table(("code", "error", "meaning"), codes())
    return _with(ROOT / "docs/reference/exit-codes.md", "codes", table)


def _comment(file: Path) -> str:
    lines = file.read_text().splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.strip("# ") for line in lines[:end])


def machine_page() -> str:
    """docs/reference/machines.md."""
    rows = []
    for name in catalog.names("machines"):
        topology = catalog.load("machines", name).get("topology", {})
        title = topology.get("title", "CPUs, described by the times of their steps")
        rows.append((f"`{name}`", title, topology.get("source", "measured; see the file")))
    form = (machines.__doc__ or "").partition("\n\n    [topology]")[2].partition("\n\n")
    return "".join(
        (
            NOTICE,
            "# Machines\n\n",
            "A machine file says how a machine is wired: `profiles/machines/NAME.toml`, or any file"
            "\nthat is given by its path. `--machine` and `topo --machine` take both.\n\n"
            "[Describe a machine](../how-to/describe-a-machine.md) makes one step by step.\n\n"
            "## Shipped machines\n\n",
            _table(("name", "machine", "source"), rows),
            "\n## The form of a file\n\n"
            'Every table needs a `source = "..."` that says where its facts are from, and'
            " `[topology]` a\n`title`. Only the tables of parts that the machine has are needed."
            "\n\n```text\n    [topology]",
            form[0],
            "\n```\n\n",
            form[2].strip(),
            "\n\nRates come from the generation and the width of a link"
            " (`collbench/machine/topology/rates.py`).\nA file states a rate only where a document"
            " states it of that very link. No file holds what\ncollectives reach, because that is"
            " what the links are judged by.\n\n"
            "## Constants of the model\n\n"
            "What [the model](../explanation/model.md) needs beside the rates of links: `[gpu]`, or"
            " `[cpu]` for\na machine of CPU cores. Each has a table `kinds.NAME` for the protocols"
            " `simple` and `ll`, GPUs\none for copy engines (`ce`) too; a protocol without a table"
            " (`ll128` may have one) costs what the\none of these does that is like it.\n\n",
            *(
                f"- `{names}`: {_sentence(costs)}\n"
                for names, costs in (
                    ("[cpu]", constants.CpuCosts),
                    ("[gpu]", constants.GpuCosts),
                    ("[cpu.kinds.NAME]` and `[gpu.kinds.NAME]", constants.KindCosts),
                    ("[gpu.kinds.NAME]", constants.GpuKindCosts),
                )
            ),
        )
    )


def _sentence(documented: type) -> str:
    """The docstring of a class in one line."""
    return " ".join((documented.__doc__ or "").split())


def preset_page() -> str:
    """docs/reference/presets.md."""
    parts = [
        NOTICE,
        "# Sweep presets and shipped results\n\n",
        "`collbench sweep --preset NAME` takes its options from `profiles/sweeps/NAME.toml`, or"
        " from any\nfile that is given by its path. Options on the command line win.\n",
    ]
    for name in catalog.names("sweeps"):
        file = ROOT / "profiles/sweeps" / f"{name}.toml"
        options = "".join(
            line for line in file.read_text().splitlines(True) if not line.startswith("#")
        )
        tomllib.loads(options)
        parts.append(f"\n## {name}\n\n{_comment(file)}\n\n```toml\n{options}```\n")
    parts.append(
        "\n## Shipped results\n\n`collbench compare FILE --against NAME` asks whether a result is"
        " normal.\n\n"
    )
    parts.append(
        _table(("name", "device", "rows", "collectives"), list(map(_result, catalog.results())))
    )
    return "".join(parts)


def _result(name: str) -> tuple[str, ...]:
    from collbench.core.record import read

    rows = read(catalog.results()[name])
    ops = ", ".join(dict.fromkeys(row.op for row in rows if row.status == "ok"))
    return f"`{name}`", rows[0].device, str(len(rows)), ops


SETTINGS = """# Settings of NCCL, CUDA, MPI and UCX

These are the variables that collbench knows, from `profiles/settings`: what they mean, which
versions of NCCL read them, and when they cost speed. A version is the first that reads a variable
("from") or the last ("to"); without one it is as old as the oldest source that was read, or its
reader is not NCCL. Defaults are those of the newest version; where there is none, the reader
chooses. A name that ends with `*` stands for all that begin so.

What NCCL does with a value:

- A number is read as C reads it. What follows it is ignored, what is no number is 0, and nobody is
  told: `NCCL_BUFFSIZE=8M` is 8 bytes, `NCCL_P2P_DISABLE=true` is 0, and `010` is 8.
- The environment wins over files. A file has lines of `NAME=VALUE`, from which nothing is trimmed;
  the first line of a name wins. NCCL reads the file of `NCCL_CONF_FILE` (from 2.23 on) or else
  `~/.nccl.conf`, and then `/etc/nccl.conf`.
"""


def settings_page() -> str:
    """docs/reference/settings.md."""
    parts = [NOTICE, SETTINGS]
    for file in sorted(settings_files(), key=lambda file: file.name != "nccl"):
        parts.append(f"\n## {file.title}\n\nSources:\n\n")
        parts += [
            textwrap.fill(f"- {source}.", 100, subsequent_indent="  ") + "\n"
            for source in file.sources
        ]
        rows = [_setting(variable, file.reader) for variable in file.variables]
        header = ("variable", "versions", "values", "default", "meaning", "when it costs")
        parts += ["\n", _table(header, rows)]
        if file.contradictions:
            rules = [_contradiction(rule) for rule in file.contradictions]
            parts.append("\nWhat contradicts what:\n\n")
            parts.append(_table(("settings", "what is wrong", "what to do"), rules))
        if file.unread:
            names = [(f"`{name}`", advice) for name, advice in file.unread.items()]
            parts.append("\nNames that scripts set and NCCL does not read:\n\n")
            parts.append(_table(("name", "what to do"), names))
        for reader in dict.fromkeys(variable.reader for variable in file.others):
            read = [f"`{one.name}`" for one in file.others if one.reader == reader]
            parts.append(f"\nNames read by {reader} alone:\n\n")
            parts.append(textwrap.fill(f"{', '.join(read)}.", 100, break_long_words=False) + "\n")
    return "".join(parts)


def _setting(variable: Variable, reader: str) -> tuple[str, ...]:
    since = f"from {variable.since}" * bool(variable.since)
    until = f"to {variable.until}" * bool(variable.until)
    other = f" Read by {variable.reader}." * (variable.reader != reader)
    newer = f" Now `{variable.replaced_by}`." * bool(variable.replaced_by)
    return (
        f"`{variable.name}`",
        " ".join(filter(None, (since, until))),
        _values(variable),
        f"`{variable.default}`" if variable.default else "",
        f"{variable.meaning}{other}{newer}",
        variable.hurts,
    )


def _values(variable: Variable) -> str:
    """What a variable takes, in a few words."""
    if variable.values:
        listed = ", ".join(f"`{value}`" for value in variable.values)
        return listed if variable.kind == "choice" else f"list of {listed}"
    if variable.kind == "flag":
        return "`0`, `1`"
    limits = {
        (False, False): "",
        (True, False): f" from {variable.least} on",
        (False, True): f" to {variable.most}",
        (True, True): f" from {variable.least} to {variable.most}",
    }[variable.least is not None, variable.most is not None]
    words = {"integer": "number", "size": "bytes", "switch": "yes, no"}
    return words.get(variable.kind, variable.kind) + limits


def _contradiction(rule: Contradiction) -> tuple[str, ...]:
    conditions = [
        f"`{one.name}` {' '.join((one.test, *one.operands))}".removesuffix(" set")
        for one in rule.when
    ]
    fact = f" ({rule.needs})" if rule.needs else ""
    return ", ".join(conditions) + fact, rule.text, rule.fix


def tuning_page() -> str:
    """docs/results/tuning.md."""
    parts = [
        NOTICE,
        """# What `auto` takes

This page is data, for whoever wants to know where a choice comes from; nobody needs it to use the
tool. These are the tables of `profiles/tuning`, each with its source and the measurements behind
it. [How a choice is found](../explanation/choices.md) says how they are read. Times in notes are in
microseconds unless they name another unit.
""",
    ]
    for file in sorted((ROOT / "profiles/tuning").glob("*.toml")):
        table = tomllib.loads(file.read_text())
        machine = table.pop("machine")
        on = f"{' or '.join(machine['models'])}, {machine['joined']}"
        ranks = ", ".join(map(str, machine["ranks"]))
        title = table.pop("title")
        parts.append(f"\n## {file.stem}\n\n{title}. It fits {ranks} ranks on {on}.\n")
        parts += _tuning("", table, {})
    return "".join(parts)


def _tuning(name: str, table: dict[str, Any], around: dict[str, Any]) -> Iterator[str]:
    """A table of a tuning file and those in it: its conditions, source, note and rows."""
    when = {**around, **table.get("when", {})}
    text = [table[key] for key in ("source", "note") if key in table]
    if text or "rows" in table:
        yield f"\n### {name}\n"
        if when:
            wanted = ", ".join(f"`{fact}` is {_wanted(value)}" for fact, value in when.items())
            yield f"\nWhere {wanted}.\n"
        yield from (f"\n{paragraph.strip()}\n" for paragraph in text)
    if rows := table.get("rows"):
        columns = tuple(dict.fromkeys(column for row in rows for column in row))
        cells = [[_wanted(row.get(column, "")) for column in columns] for row in rows]
        by = f"By `{table['by']}`:\n\n" if "by" in table else ""
        yield f"\n{by}{_table(columns, cells)}"
    for key, value in table.items():
        if isinstance(value, dict) and key != "when":
            yield from _tuning(f"{name}.{key}".lstrip("."), value, when)
        elif key not in ("when", "by", "source", "note", "rows"):
            yield f"\n`{key}` = {value}\n"


def _wanted(value: object) -> str:
    """A value of a tuning file, or several."""
    if isinstance(value, list):
        return " or ".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _floors() -> list[list[str]]:
    """The packages on each floor, the lowest first, as the test of the house has them."""
    tree = ast.parse((ROOT / "tests/test_house.py").read_text())
    assigned = {
        ast.unparse(node.targets[0]): node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    return [floor.split() for floor in ast.literal_eval(assigned["FLOORS"])]


def house() -> str:
    """The packages on their floors as a drawing, and what each of them is."""
    drawn, rows = [f"    +{'-' * HOUSE_WIDTH}+"], []
    for number, names in reversed(list(enumerate(_floors()))):
        room = HOUSE_WIDTH // len(names)
        rooms = "|".join(f" {name:<{room - 2}}" for name in names)
        drawn += [f"{number:>2}  |{rooms:<{HOUSE_WIDTH}}|", drawn[0]]
        for name in names:
            module = ast.parse((ROOT / f"collbench/{name}/__init__.py").read_text())
            rows.append((f"`{name}`", (ast.get_docstring(module) or "").split("\n\n")[0]))
    return "```text\n" + "\n".join(drawn) + "\n```\n\n" + _table(("package", "what it is"), rows)


def _with(page: Path, mark: str, content: str) -> str:
    """A page's text with new content between its marks."""
    head, _, rest = page.read_text().partition(f"<!-- {mark} -->\n")
    _, end, tail = rest.partition(f"<!-- /{mark} -->\n")
    return f"{head}<!-- {mark} -->\n{content}{end}{tail}"


def architecture_page() -> str:
    """docs/explanation/architecture.md, with the house as it stands."""
    return _with(ROOT / "docs/explanation/architecture.md", "house", house())


def completion(shell: str) -> str:
    """The script that completes commands and options in a shell, as click writes it."""
    environment = {**os.environ, "_COLLBENCH_COMPLETE": f"{shell}_source"}
    done = subprocess.run(
        [sys.executable, "-c", "from collbench.cli import cli; cli(prog_name='collbench')"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip() + "\n"


def check_page(identifier: str) -> str:
    """docs/reference/checks/NAME.md."""
    one = description(identifier)
    needs = ", ".join(one.needs) or "nothing beyond a recording"
    return (
        f"{NOTICE}# {identifier}\n\n{one.title}. It needs: {needs}.\n\n{one.explanation.strip()}"
        "\n\n[All checks](index.md)\n"
    )


def check_index() -> str:
    """docs/reference/checks/index.md."""
    text = (
        "`collbench doctor` looks by these checks. `collbench doctor --list` says which of them can"
        " look on a\nmachine, and `collbench doctor --explain NAME` shows the same texts.\n\n"
    )
    rows = [(f"[{name}]({name}.md)", description(name).title) for name in identifiers()]
    return f"{NOTICE}# Checks of the doctor\n\n{text}" + _table(("check", "looks at"), rows)


def catalogue_page() -> str:
    """docs/results/doctor-catalogue.md."""
    rows = []
    plants = import_module("tests.doctor.plants").PLANTS
    for identifier in identifiers():
        for plant in plants[identifier]:
            named = next(
                (
                    one
                    for one in check(identifier).find(plant.evidence)
                    if one.subject == plant.subject and plant.words in one.seen
                ),
                None,
            )
            found = ("no", "", "") if named is None else (named.subject, named.seen, named.severity)
            rows.append((identifier, plant.name, *found))
    text = (
        "Each row is a machine that is well but for one thing. The check must name what is affected"
        " and say\nwhat it saw; on machines that are well it must say nothing. How the costs are"
        " proved stands in\n[doctor](doctor.md).\n\n"
    )
    heads = ("check", "planted", "named", "what it says", "severity")
    return f"{NOTICE}# Planted faults\n\n{len(rows)} faults. {text}" + _table(heads, rows)


def generated() -> dict[Path, Callable[[], str]]:
    """Every generated text file, with what makes its text. A test holds these current."""
    reference = ROOT / "docs/reference"
    return {
        reference / "commands.md": command_page,
        reference / "csv.md": column_page,
        reference / "exit-codes.md": exit_code_page,
        reference / "machines.md": machine_page,
        reference / "presets.md": preset_page,
        reference / "settings.md": settings_page,
        ROOT / "docs/results/tuning.md": tuning_page,
        ROOT / "docs/results/doctor-catalogue.md": catalogue_page,
        ROOT / "docs/explanation/architecture.md": architecture_page,
        reference / "checks/index.md": check_index,
        **{
            reference / "checks" / f"{name}.md": partial(check_page, name) for name in identifiers()
        },
    }


PICTURES = {
    "hgx-h200.svg": "collbench topo --machine hgx-h200 --svg -",
    "dgx-1v.svg": "collbench topo --machine dgx-1v --svg -",
    "h200x4-allreduce.png": "grep -E '^(op|allreduce),' profiles/results/h200x4.csv > h200x4.csv;"
    " collbench compare h200x4.csv --plot out.png > out.txt && cat out.png",
}


def drawn(command: str) -> bytes:
    """The picture that a command prints; the plot needs matplotlib."""
    from docs.blocks import furnish

    with tempfile.TemporaryDirectory() as place:
        environment = furnish(Path(place))
        return subprocess.run(
            ["bash", "-c", command], cwd=place, env=environment, check=True, capture_output=True
        ).stdout


def with_output(page: Path) -> str:
    """A page with what its commands print now."""
    with tempfile.TemporaryDirectory() as place:
        return filled(page.read_text(), Path(place))


def main() -> None:
    """Write everything, or what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.generate", description="Write what is generated in the documents."
    )
    parser.add_argument(
        "file", nargs="*", type=Path, help="write these alone, such as docs/reference/csv.md"
    )
    asked = {file.resolve() for file in parser.parse_args().file}
    texts, completions, images = generated(), ROOT / "docs/completion", ROOT / "docs/images"
    texts |= {completions / name: partial(completion, shell) for shell, name in SHELLS.items()}
    pictures = {images / name: command for name, command in PICTURES.items()}
    if unknown := asked - {*texts, *pictures, *pages()}:
        parser.error(f"nothing is generated in {', '.join(map(str, sorted(unknown)))}")

    def wanted(files: Iterable[Path]) -> list[Path]:
        return [file for file in files if not asked or file in asked]

    for file in wanted(texts):
        file.write_text(texts[file]())
    for file in wanted(pictures):
        file.write_bytes(drawn(pictures[file]))
    for page in wanted(pages()):
        page.write_text(with_output(page))


if __name__ == "__main__":
    main()
