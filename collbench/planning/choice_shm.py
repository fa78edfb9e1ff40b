"""What "auto" means for GPUs through host memory. tuning_gpu.py and tuning_knobs.py ask here for
what differs from memory of peers.

Each number has the sweep that justifies it: 4 x H200 of one host, PCIe 5.0 x16 each, one process a
GPU, float32 sum, 2026-11-21 and 22. A GPU that polls lines of ll in host memory reads them over
PCIe each time, so there simple wins from smaller sizes on, with few channels; and what FIFOs take
together should stay in the processor's cache.
"""

_Choices = tuple[tuple[int, str, str], ...]  # (largest S, algorithm, protocol)
_K, _M, _ANY = 1 << 10, 1 << 20, 1 << 62
# By op: (largest S, algorithm, protocol). Times in us, NCCL's without P2P in brackets. Allreduce of
# 8 KiB one-shot ll 6.7 (17.6); 32 KiB two-shot ll 11.6, one-shot 13.1 (19.3); 256 KiB two-shot ll
# 31.7, simple 35.1 (48.5); 512 KiB two-shot simple 42.2, ring 54.9 (77.1); 1 MiB ring 70.4,
# two-shot 72.6 (97.4). Allgather of 256 KiB direct ll 18.0, simple 23.5 (28.6); 512 KiB ring ll
# 25.1, direct simple 28.0 (42.1); 1 MiB direct simple 39.3, ring 42.1 (54.6); 2 MiB ring 65.7,
# direct 69.5 (77.0). Reducescatter of 32 KiB direct ll 6.8, ring 8.7 (13.2); 256 KiB ring ll 15.6,
# direct 17.6 (27.7); 1 MiB ring simple 40.6, direct 41.9 (56.9). Alltoall of 256 KiB ll 17.2,
# simple 23.9 (21.1); 512 KiB simple 25.8, ll 31.5 (29.3). Broadcast of 8 KiB chain ll 7.6, direct
# simple 8.7 (11.3); 32 KiB direct simple 9.2, chain 10.1, ll 14.4 (12.1); 64 KiB chain simple 10.7,
# direct 11.2 (13.1); 16 MiB two-shot 443, chain 454 (514). Reduce of 8 KiB chain ll 7.5, two-shot
# 8.7 (11.3); 32 KiB two-shot ll 10.1, chain 14.4 (12.1); 128 KiB chain simple 16.9, two-shot ll
# 19.4 (21.2). Sendrecv of 16 KiB ll 8.2, simple 10.5, of 32 KiB 14.6, 11.1, of 64 KiB 27.3, 12.2
# (17.3). Gather and scatter as alltoall, not measured.
# by duplex alltoall of 256 KiB takes 17.5, by direct 18.4, but sendrecv 61.8 and 40.0
_LINES = (_ANY, "direct", "ll")
BEST: dict[str, _Choices] = {
    "allreduce": (
        (16 * _K, "oneshot", "ll"),
        (256 * _K, "twoshot", "ll"),
        (512 * _K, "twoshot", "simple"),
        (_ANY, "ring", "simple"),
    ),
    "allgather": (
        (256 * _K, "direct", "ll"),
        (512 * _K, "ring", "ll"),
        (_M, "direct", "simple"),
        (_ANY, "ring", "simple"),
    ),
    "reducescatter": (
        (64 * _K, "direct", "ll"),
        (256 * _K, "ring", "ll"),
        (512 * _K, "direct", "simple"),
        (_ANY, "ring", "simple"),
    ),
    "broadcast": (
        (8 * _K, "chain", "ll"),
        (32 * _K, "direct", "simple"),
        (8 * _M, "chain", "simple"),
        (_ANY, "twoshot", "simple"),
    ),
    "reduce": ((8 * _K, "chain", "ll"), (32 * _K, "twoshot", "ll"), (_ANY, "chain", "simple")),
    "alltoall": (
        (256 * _K, "direct", "ll"),
        (_M, "direct", "simple"),
        (_ANY, "duplex", "simple"),
        _LINES,
    ),
    "gather": ((256 * _K, "direct", "ll"), (_ANY, "direct", "simple")),
    "scatter": ((256 * _K, "direct", "ll"), (_ANY, "direct", "simple")),
    "sendrecv": (
        (16 * _K, "direct", "ll"),
        (_M, "direct", "simple"),
        (_ANY, "duplex", "simple"),
        _LINES,
    ),
}
# Two ranks, where it differs: sendrecv of 64 KiB ll 7.4, simple 12.2; of 2 MiB duplex 80, direct
# 83; alltoall of 2 MiB direct 48.4, duplex 8 by 64K 51.5; of 4 MiB 84.1, 85.2; of 8 MiB 152, 149;
# of 64 MiB duplex 894, direct more than 933.
BEST_OF_TWO: dict[str, _Choices] = {
    **BEST,
    "alltoall": (
        (256 * _K, "direct", "ll"),
        (4 * _M, "direct", "simple"),
        (_ANY, "duplex", "simple"),
        _LINES,
    ),
    "sendrecv": (
        (64 * _K, "direct", "ll"),
        (_M, "direct", "simple"),
        (_ANY, "duplex", "simple"),
        _LINES,
    ),
}
LL_UP_TO = 128 * _K  # where an algorithm is given and no protocol
# Channels of simple by S, and bytes of a chunk. Ring allreduce of 4 MiB, 12 channels by 128K 205
# us, 16 by 64K 214, 32 220; 16 MiB 32 by 64K 677, 16 701; 256 MiB 32 by 64K 10.2 ms, by 512K 19.
# Chain of 64 KiB 2 channels 10.7, 8 16.2; 4 MiB 8 124, 16 125, 32 155; 1 MiB 8 by 128K 37.1, by 64K
# 38.9; 8 MiB 226, 238; reduce of 1 MiB 37.3, 38.9, of 8 MiB 224, 237, of 64 MiB 16 1728, 8 1799.
# Alltoall of 512 KiB 4 channels 25.8, 8 28.4; 4 MiB 16 by 32K 124, by 64K 157, 8 by 32K 131; 8 MiB
# 16 by 32K 239, 32 by 16K 225, 16 MiB 427, 410, 64 MiB 1579, 1467, 16 by 64K 2370; gather and
# scatter alike, not measured. Two H200s, where every rank has one peer: broadcast of 32 KiB 2
# channels 7.7, 4 8.9, 8 13; sendrecv of 128 KiB 2 channels 16.1, 4 14.5, 8 18.4; allgather of 64
# MiB 32 by 64K 1.15 times as fast as 16 by 128K. Times as fast as NCCL there, 8 channels by 128K /
# 12 / 16: allreduce of 2 MiB 1.22, 1.27, 1.17, of 6 MiB 1.10, 1.26, 1.17, of 12 MiB 1.13, 1.25,
# 1.26; allgather 1.21, 1.29, 1.22, of 12 MiB 0.96, 1.20, 1.16. Where no rank passes anything on, 12
# by 128K / 16 by 32K: allgather of 6 MiB 1.22, 1.20, of 8 MiB 1.09, 1.19, of 12 MiB 1.20, 1.22;
# reducescatter 1.21, 1.18, then 1.16, 1.17, then 1.19, 1.20; so chosen, sendrecv 1.21, 1.25, 1.31
# and alltoall 1.22, 1.23, 1.26.
_RING = (
    (64 * _K, 2, 64 * _K),
    (128 * _K, 4, 64 * _K),
    (_M, 8, 128 * _K),
    (12 * _M, 12, 128 * _K),
    (_ANY, 32, 64 * _K),
)
_ONE_HOP_RING = (*_RING[:3], (6 * _M, 12, 128 * _K), (12 * _M, 16, 32 * _K), _RING[-1])
# Rings of more ranks, of four: 2 MiB, 8 channels by 64K in two slices / 8 by 128K / 12 by 128K:
# allgather 58.3, 64.6, 66.6, reducescatter 58.5, 63.1, 65.6, allreduce 103, 119, 119; 4 MiB, 16 by
# 64K in two slices / 12 by 128K: 104, 110, then 107, 111, then 191, 207; 8 MiB, both in two slices:
# 194, 206, then 197, 207, then 363, 383; of 16 MiB 364, 32 by 64K 367.
_LONG_RING = (*_RING[:3], (2 * _M, 8, 64 * _K), (12 * _M, 16, 64 * _K), _RING[-1])
_SHORT = 2  # hops that a ring of two ranks has at most
# One way only, between two ranks, PCIe is the end; 12 by 128K / 16 by 128K, 32 by 64K / 16 by 128K:
# broadcast of 2 MiB 1.12, 1.14, of 8 MiB 1.05, 1.07, of 64 MiB 1.01, 1.03; reduce 1.07, 1.12, then
# 1.04, 1.07, then 1.00, 1.02. Gather and scatter alike, not measured.
_ONE_WAY = (*_RING[:3], (_ANY, 16, 128 * _K))
_PIPELINED = (
    (64 * _K, 2, 64 * _K),
    (128 * _K, 4, 64 * _K),
    (8 * _M, 8, 128 * _K),
    (_ANY, 16, 64 * _K),
)
_DIRECT = (
    (64 * _K, 2, 64 * _K),
    (512 * _K, 4, 64 * _K),
    (_M, 8, 64 * _K),
    (4 * _M, 16, 32 * _K),
    (_ANY, 32, 16 * _K),
)
# Duplex, to and from several peers / direct as above: alltoall of 1 MiB 41.4, 39.7, of 2 MiB 4
# channels by 32K 67.2, 70.1, 4 MiB 8 by 32K 118, 128, 8 MiB 206, 225, 64 MiB 12 by 32K 1359, 1467.
# To the next of four, from the one before / direct: sendrecv of 2 MiB 8 by 32K 82, 90, 4 MiB 142,
# 160, 8 MiB 12 by 32K 254, 293, 64 MiB 32 by 32K 1744, 2051; of two 80, 138, 251, 1742.
_DUPLEX = (
    (64 * _K, 2, 64 * _K),
    (512 * _K, 4, 64 * _K),
    (2 * _M, 4, 32 * _K),
    (8 * _M, 8, 32 * _K),
    (_ANY, 12, 32 * _K),
)
_DUPLEX_ONE_PEER = (*_DUPLEX[:2], (4 * _M, 8, 32 * _K), (16 * _M, 12, 32 * _K), (_ANY, 32, 32 * _K))
_SLICED_FROM, _SLICED_FROM_LONG = 8 * _M, _M + 1
_SHOTS = ((_M, 8, 64 * _K), (_ANY, 16, 64 * _K))


def simple_knobs(
    size_bytes: int, *, is_rooted: bool, is_pipelined: bool, tracks: int, peers: int, hops: int
) -> tuple[int, int, int]:
    """Channels, bytes of a chunk at most, and its slices.

    is_rooted: what the collective is; is_pipelined: loops follow each other through the ranks;
    tracks and peers of a rank; hops of a loop.

    >>> simple_knobs(4 << 20, is_rooted=False, is_pipelined=False, tracks=1, peers=1, hops=2)
    (12, 131072, 1)
    >>> simple_knobs(64 << 20, is_rooted=False, is_pipelined=False, tracks=1, peers=3, hops=1)
    (32, 16384, 1)
    """
    table: tuple[tuple[int, int, int], ...]
    if is_pipelined:
        table = _PIPELINED
    elif hops == 1 and tracks > 1:
        table = _DUPLEX_ONE_PEER if peers == 1 else _DUPLEX
    elif peers == 1:
        table = (
            _ONE_WAY
            if is_rooted
            else _ONE_HOP_RING
            if hops == 1
            else _RING
            if hops <= _SHORT
            else _LONG_RING
        )
    else:
        table = _DIRECT if hops == 1 else _SHOTS
    channels, chunk = next(
        (channels, chunk) for largest, channels, chunk in table if size_bytes <= largest
    )
    sliced_from = _SLICED_FROM_LONG if table is _LONG_RING else _SLICED_FROM
    return channels, chunk, 2 if hops > 1 and not is_pipelined and size_bytes >= sliced_from else 1
