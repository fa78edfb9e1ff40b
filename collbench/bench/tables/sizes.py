"""The table of a sweep by size: the best configuration beside the runner-up and the libraries.

What other processes disturbed has bounds in the place of times: the fastest of the repeats says
what the machine can do at least.
"""

from collections.abc import Sequence
from functools import partial

from collbench.bench.tables.sweep import notes_text
from collbench.compare.best import Best, Summary, best_label, summarise
from collbench.compare.doubt import doubt_lines
from collbench.compare.tables.summary import (
    SIZE,
    BestColumn,
    auto_text,
    best_table,
    busbw_text,
    form_heading,
    has_forms,
    legend,
    next_text,
    percent_text,
    rival_text,
    rival_time_text,
    rivals_of,
    speedup_text,
    time_text,
)
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.rows import as_written, label, titles
from collbench.core.text import NARROW_COLUMNS, paragraphs

# notes that are of every row, or that another column says
_TOLD = {"auto", "modelled", "noisy"}


def size_lines(
    records: Sequence[Record], columns: int = NARROW_COLUMNS, least_rows: int = 1
) -> list[str]:
    """A table a workload, with a row a size, and what its columns mean; none without a time.
    least_rows: of a size that is shown; more than one: the best of them is one of ours.
    """
    summary = summarise(list(map(as_written, records)))
    shown = {
        workload: {
            size: best
            for size, best in sizes.items()
            if len(summary.workloads[workload][size]) >= least_rows
            and (least_rows == 1 or not is_peer(best.row.backend))
        }
        for workload, sizes in summary.best.items()
    }
    shown = {workload: sizes for workload, sizes in shown.items() if sizes}
    names, lines = titles(shown), doubt_lines(summary, columns)
    if not shown:
        return lines[:-1]
    for workload, sizes in shown.items():
        every = list(sizes.values())
        lines += [names[workload]] if len(names) > 1 else []
        lines += [*best_table(_columns(summary, every), every, columns), ""]
    every = [best for sizes in shown.values() for best in sizes.values()]
    told = paragraphs(legend(summary, every), columns)
    return lines + told if told else lines[:-1]


def _columns(summary: Summary, every: Sequence[Best]) -> list[BestColumn]:
    libraries = {
        row.backend for best in every for row in (best.row, best.runner_up) if row and not row.proto
    }  # all of them are called `library`
    has_backend = len({best.row.backend for best in every}) > 1 or len(libraries) > 1
    name = partial(label, knobs=summary.knobs, has_backend=has_backend)

    def best_name(best: Best) -> str:
        is_alone = len(best.rows) == 1
        return (
            name(best.row) if is_alone else best_label(best, summary.knobs, has_backend=has_backend)
        )

    def second_name(best: Best) -> str:
        return "-" if best.runner_up is None else name(best.runner_up)

    columns = [
        SIZE,
        BestColumn("best", best_name, is_number=False),
        BestColumn("time\nus", time_text),
        BestColumn("busbw\nGB/s", busbw_text),
    ]
    if any(best.of_max is not None for best in every):
        columns.append(BestColumn("of\nmax", lambda best: percent_text(best.of_max)))
    if any(best.runner_up is not None for best in every):
        columns.append(BestColumn("runner-up", second_name, is_number=False, spare=1))
        columns += [BestColumn("next", next_text)] * any(best.gain is not None for best in every)
        columns += [BestColumn("auto", auto_text)] * any(best.excess is not None for best in every)
    for peer in rivals_of(every):
        has_ratios = any(peer in best.peers for best in every)
        columns.append(
            BestColumn(f"{peer}\nus", partial(rival_time_text, peer=peer), spare=2 * has_ratios)
        )
        columns += [BestColumn(f"vs\n{peer}", partial(speedup_text, peer=peer))] * has_ratios
        form = BestColumn(form_heading(peer), partial(rival_text, peer=peer), is_number=False)
        columns += [form] * has_forms(summary, peer)
    if any(map(_notes, every)):
        columns.append(BestColumn("notes", _notes, is_number=False, spare=3))
    return columns


def _notes(best: Best) -> str:
    """Those that no other column tells."""
    return " ".join(word for word in notes_text(best.row.notes).split() if word not in _TOLD)
