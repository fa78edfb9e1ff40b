"""What NCCL's Inspector plugin writes for Prometheus: a line for each kind of collective of a GPU
and interval, with its mean time (plugins/profiler/inspector of NCCL, from 2.29 on; 2.28.7 in an
older form).

    nccl_collective_exec_time_microseconds{node="n1",gpu="GPU0",nranks="8",...} 104.2

`message_size` is a range of the size of a rank's block, such as 134-135MB, of which the lower end
counts. How often a collective ran is not in it.
"""

import re

from collbench.core.collectives import collective
from collbench.core.dtypes import DtypeName
from collbench.jobs.formats import Opened
from collbench.jobs.formats._torch import op_of
from collbench.jobs.model import Call, Job

NAME = "output of NCCL's Inspector for Prometheus"
HINT = (
    "give the .prom files of NCCL_INSPECTOR_DUMP_DIR whole (nccl_collective_exec_time_microseconds"
    " has the times), or write JSON: NCCL_INSPECTOR_PROM_DUMP=0"
)
_ASSUMED: DtypeName = "float32"
_SAMPLE = re.compile(
    r"^nccl_collective_exec_time_microseconds\{(?P<labels>[^}]{1,2000})\}"
    r"\s+(?P<us>\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,2})?)(?=\s|$)"
)
_LABEL = re.compile(r'(\w{1,40})="([^"]{0,200})"')
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(?:-\d{1,9})?(B|KB|MB|GB|TB)\Z")
_UNITS = {"B": 0, "KB": 10, "MB": 20, "GB": 30, "TB": 40}
_MOST_CALLS = 1 << 20


def is_mine(head: str) -> bool:
    """Whether a file begins like that output."""
    return (
        re.search(r"^nccl_(?:collective_exec_time|bus_bandwidth|p2p_)\w*\{", head, re.M) is not None
    )


def read(files: Opened) -> Job:
    """The kinds of collectives of the GPU with the most, each once, with its mean time."""
    by_gpu: dict[tuple[str, str], list[Call]] = {}
    for _name, file in files:
        for line in file:
            sample = _SAMPLE.match(line)
            labels = dict(_LABEL.findall(sample["labels"])) if sample else {}
            call = _call(labels, float(sample["us"])) if sample else None
            calls = by_gpu.setdefault(_gpu(labels), []) if call else []
            if call and len(calls) < _MOST_CALLS:
                calls.append(call)
    return Job(
        name=files[0][0],
        source=NAME,
        calls=max(by_gpu.values(), key=len, default=[]),
        remarks=[
            f"the Inspector writes no element types: {_ASSUMED} is assumed",
            "times are means of an interval, and how often each collective ran is not in the file:"
            " each counts once",
        ],
    )


def _gpu(labels: dict[str, str]) -> tuple[str, str]:
    host = labels.get("node") or labels.get("hostname", "")
    return host, labels.get("gpu") or labels.get("gpu_device_id") or labels.get("rank", "")


def _call(labels: dict[str, str], us: float) -> Call | None:
    op, size = op_of(labels.get("collective", "")), _SIZE.match(labels.get("message_size", ""))
    text = labels.get("nranks") or labels.get("n_ranks", "")
    ranks = int(text) if text.isdecimal() and len(text) < 8 else 0
    if op is None or size is None or ranks < 2 or not us:
        return None
    block = int(float(size[1]) * (1 << _UNITS[size[2]]))
    return Call(
        op=op,
        size_bytes=block * (ranks if collective(op).size_in_blocks else 1),
        dtype=_ASSUMED,
        ranks=ranks,
        group=labels.get("comm_id") or labels.get("comm_name", ""),
        start_us=None,
        duration_us=us,
    )
