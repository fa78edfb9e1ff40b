"""Results in files of other tools: one format a file, found by the file's name; the content decides
which ones a text is of, as a log may hold the tables of several tools.

A format has TOOL, the name of what writes it; IS_DOCUMENT, if it is a file by itself and never a
part of a log; is_mine(text); and read(text, name), which gives rows and remarks, or one UsageError
with the place. Rows are made by foreign.foreign() and foreign.merged().
"""

from collbench.core.registry import Family

_HELPERS = (
    "foreign",
    "launch_line",
    "log_lines",
    "nccl_tests_table",
    "nvbandwidth_matrix",
    "own",
    "proof",
)
FAMILY = Family(__name__, __path__, "format of results", helpers=frozenset(_HELPERS))
