"""Files that people give to `log` and that another command or tool reads: each is named with it."""

import re

from collbench.core.errors import UsageError
from collbench.core.screen import remark
from collbench.jobs.formats import kineto

# what it is, which begins of a file tell it, and the command that reads it
_OTHERS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (what, re.compile(pattern, re.MULTILINE), command)
    for what, pattern, command in (
        (
            "a table of nccl-tests",
            r"^[\\#\s]*size\s+count\s+type\s+redop|^#?\s*nccl-tests version|^#\s*nThread \d+ nGpus",
            "compare",
        ),
        ("a table of OSU's benchmarks", r"^\\?#\s*OSU ", "compare"),
        ("results of nvbandwidth", r"nvbandwidth Version", "compare"),
        (
            "the output of p2pBandwidthLatencyTest",
            r"^\[?P2P \(Peer-to-Peer\) GPU Bandwidth|P2P=\w+ Bandwidth",
            "compare",
        ),
        (
            "the output of perftest",
            r"RDMA_Write BW Test|RDMA_Read BW Test|Send BW Test|#bytes\s+#iterations",
            "compare",
        ),
        (
            "a matrix of GPUs",
            r"^\s*GPU0\s+(?:GPU1|NIC0|CPU)|Link Type between two GPUs|(?:LINK TYPE|ACCESS) TABLE",
            "topo --from",
        ),
        ("a list of NVLinks by nvidia-smi", r"^\s*Link \d+: (?:\d|<inactive>)", "topo --from"),
        ("a topology of NCCL", r"^<system version", "topo --from"),
        ("a list of rates of pairs", r"^(?:host|node)_a,(?:host|node)_b,", "hunt --from"),
        ("a file of NCCL's Inspector", r'^\{.*"coll_perf"|"coll_exec_time_us"', "replay"),
        (
            "a file of NCCL's Inspector for Prometheus",
            r"^(?:# (?:HELP|TYPE) )?nccl_\w+(?:\{| )",
            "replay",
        ),
    )
)


def refuse_trace(file: str, head: str) -> None:
    """Raise UsageError for a trace of PyTorch's profiler."""
    if head.lstrip()[:1] in ("{", "[") and kineto.is_mine(head):
        raise UsageError(
            f"{file}: this is a Kineto trace, of PyTorch's profiler",
            f"collbench replay {file} reads it",
        )


def refuse_others(file: str, head: str, *, is_log: bool = False) -> None:
    """Raise UsageError for a file that another command or tool reads; of a log say only that."""
    for what, pattern, command in _OTHERS:
        if pattern.search(head):
            reads = f"collbench {command} {file} reads it"
            if not is_log:
                raise UsageError(f"{file}: this is {what}, not a log", reads)
            remark(f"{file}: {what} is in it; {reads}.")
            break
