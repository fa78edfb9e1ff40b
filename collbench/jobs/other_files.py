"""Files that people give to `log` and that another command or tool reads: each is named with it."""

import re

from collbench.core.errors import UsageError
from collbench.jobs.formats import kineto

# what it is, which begins of a file tell it, and what reads it
_OTHERS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (what, re.compile(pattern, re.MULTILINE), reader)
    for what, pattern, reader in (
        (
            "a table of nccl-tests",
            r"^[\\#\s]*size\s+count\s+type\s+redop|^#?\s*nccl-tests version|^#\s*nThread \d+ nGpus",
            "collbench compare {file}",
        ),
        ("a table of OSU's benchmarks", r"^\\?#\s*OSU ", "collbench compare {file}"),
        ("results of nvbandwidth", r"nvbandwidth Version", "collbench compare {file}"),
        (
            "the output of p2pBandwidthLatencyTest",
            r"^\[?P2P \(Peer-to-Peer\) GPU Bandwidth|P2P=\w+ Bandwidth",
            "collbench compare {file}",
        ),
        (
            "the output of perftest",
            r"RDMA_Write BW Test|RDMA_Read BW Test|Send BW Test|#bytes\s+#iterations",
            "collbench compare {file}",
        ),
        (
            "a matrix of GPUs",
            r"^\s*GPU0\s+(?:GPU1|NIC0|CPU)|Link Type between two GPUs|LINK TYPE TABLE",
            "collbench topo --from {file}",
        ),
        (
            "NVLinks of nvidia-smi",
            r"^\s*Link \d+: (?:\d|<inactive>)",
            "collbench topo --from {file}",
        ),
        ("a topology of NCCL", r"^<system version", "collbench topo --from {file}"),
        ("rates of pairs", r"^(?:host|node)_a,(?:host|node)_b,", "collbench hunt --from {file}"),
        (
            "lines of NCCL's Inspector",
            r'^\{.*"coll_perf"|"coll_exec_time_us"',
            "collbench replay {file}",
        ),
        (
            "metrics of NCCL's Inspector for Prometheus",
            r"^(?:# (?:HELP|TYPE) )?nccl_\w+(?:\{| )",
            "collbench replay {file}",
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


def refuse_others(file: str, head: str) -> None:
    """Raise UsageError for a file that another command or tool reads."""
    for what, pattern, reader in _OTHERS:
        if pattern.search(head):
            raise UsageError(
                f"{file}: this is {what}, not a log", f"{reader.format(file=file)} reads it"
            )
