"""What "auto" means for GPUs over messages of MPI. tuning_gpu.py and tuning_knobs.py ask here for
what differs from memory of peers.

A processor copies every byte, or a network card does; so a few channels keep it busy while GPUs
work on others, and messages should be large enough for what Python does for each. Measured on one
host with Open MPI 4.1.6 and its btl_vader_single_copy_mechanism cma, float32 sum, 2026-11-22. Plain
ratios are times as fast as NCCL without P2P and SHM, on 2 x H200 with 32 cores; times, in us, are
of 4 x H200 with 64 cores, or of two of these.
"""

_Table = tuple[tuple[int, int, int], ...]
Choices = tuple[tuple[int, str, str], ...]  # (largest S, algorithm, protocol)
_K, _M, _ANY = 1 << 10, 1 << 20, 1 << 62
# By op: (largest S, algorithm, protocol), the protocol being settled by LL_UP_TO before. Four GPUs,
# direct / duplex: alltoall of 2 MiB 260, 291, 4 MiB 523, 486, 16 MiB 1932, 1441, 64 MiB 7415, 2806,
# 256 MiB 22200, 9360; sendrecv of 2 MiB 362, 349, 16 MiB 2304, 1306, 64 MiB 5655, 3313. Two GPUs,
# 2, 16 and 64 MiB: alltoall 183, 192, then 1043, 785, then 2269, 1625; sendrecv 321, 286, then
# 1693, 1118, then 3856, 2774.
BEST: dict[str, Choices] = {
    "alltoall": ((2 * _M, "direct", "simple"), (_ANY, "duplex", "simple"), (_ANY, "direct", "ll")),
    "sendrecv": ((_M, "direct", "simple"), (_ANY, "duplex", "simple"), (_ANY, "direct", "ll")),
}
# Of three or four ranks; of more, duplex has too many connections, of two it was not measured.
# Four, ring / duplex, 8, 16 and 64 MiB: allgather 745, 787, then 1596, 1372, then 3287, 2812;
# reducescatter 797, 724, then 1635, 1184, then 3481, 2591.
FEW_RANKS = (3, 4)
_RING_OR_DUPLEX = (
    (512 * _K, "direct", "ll"),
    (8 * _M, "ring", "simple"),
    (_ANY, "duplex", "simple"),
    (_ANY, "ring", "ll"),
)
BEST_OF_FEW: dict[str, Choices] = {
    **BEST,
    "allgather": _RING_OR_DUPLEX,
    "reducescatter": _RING_OR_DUPLEX,
}
LL_UP_TO = 16 * _K
# By S: channels, bytes of a message at most. 1 MiB, 2 channels by 128K / 256K / 512K: allgather
# 2.4, 2.7, 2.8; allreduce 2.3, 2.5, 2.3; broadcast 2.0, 2.1, 2.3; with one channel by 512K 2.7,
# 2.3, 2.2, with 4 2.2, 2.2, 2.2. 4 MiB, 2 channels by 256K / 512K: allgather 2.4, 2.3; allreduce
# 2.7, 2.8; sendrecv 3.3, 3.3; 4 channels by 512K 2.4, 2.5, 3.5. Where threads receive: 16 MiB, 4
# channels by 512K / 1M / 2M: allgather 2.0, 2.7, 3.0, allreduce 2.4, 3.0, 2.7, sendrecv 3.1, 3.9,
# 4.1; 64 MiB allgather 2.1, 2.8, 3.5, allreduce 2.9, 4.7, 5.1.
_UP_TO_8M = ((256 * _K, 1, 256 * _K), (8 * _M, 2, 512 * _K))
_MESSAGES = (*_UP_TO_8M, (32 * _M, 4, _M), (_ANY, 4, 2 * _M))
# Where more than two ranks pass it on. GB/s into each of 4 ranks of what proxies alone do
# (tests/_net_speed.py), ring of 64 MiB by 1M / 2M: allgather 26, 21, allreduce 26, 19; of 3 ranks
# 29, 23, but allreduce 23, 29.
_MESSAGES_MANY_RANKS = (*_UP_TO_8M, (_ANY, 4, _M))
# Where no rank passes anything on; 4 channels by 1M / 2M, 8 by 1M: 16 MiB allgather 2.7, 3.2, 3.1,
# reducescatter 2.7, 2.8, 2.8, alltoall 3.8, 4.0, 3.6, sendrecv 4.2, 5.0, 5.8; 64 MiB 3.0, 3.4, 4.6,
# then 3.1, 4.1, 4.7, then 4.2, 5.0, 6.3, then 5.2, 6.9, 8.3.
_MESSAGES_ONE_PEER = (*_UP_TO_8M, (32 * _M, 4, 2 * _M), (_ANY, 8, _M))
# To and from each of several peers. Proxies alone, alltoall of 4 ranks, GB/s: 4 MiB 2 channels by
# 512K 7, by 1M (so that threads receive) 15; 16 MiB 9 by 512K, 21 by 1M, 4 by 1M 13, by 2M 10, 8 by
# 1M 10; 64 MiB 10, 27, 12, 11, 11.
_MESSAGES_SEVERAL_PEERS = ((256 * _K, 1, 256 * _K), (2 * _M, 2, 512 * _K), (_ANY, 2, _M))
# Duplex. Four GPUs, to and from three peers: alltoall of 8 MiB, 1 channel by 512K 885, 2 by 1M
# 1071, 4 by 1M 1021; 16 MiB 2 by 1M 1441, by 512K 1535, 4 by 1M 1740; 64 MiB 2806, 6261, 5204. To
# one and from another: sendrecv of 2 MiB 1 by 512K 302, 2 349; 8 MiB 1000, 1105, 4 by 1M 1035; 16
# MiB 2 by 2M 1306, 4 by 1M 1406; 64 MiB 3313, 3841. Two GPUs, to and from each other: sendrecv of 2
# MiB 2 by 512K 286, 4 330; 16 MiB 4 by 1M 1118, 2 by 2M 1252; 64 MiB 2940, 2774.
_MESSAGES_DUPLEX = ((256 * _K, 1, 256 * _K), (8 * _M, 1, 512 * _K), (_ANY, 2, _M))
_MESSAGES_DUPLEX_ONE_PEER = (*_MESSAGES_DUPLEX[:2], (_ANY, 2, 2 * _M))
_MESSAGES_DUPLEX_TWO_RANKS = (*_UP_TO_8M, (32 * _M, 4, _M), (_ANY, 2, 2 * _M))
# to each of several peers, too, where one rank sends: scatter of 64 MiB to 4 ranks by 2M, 2
# channels 77 GB/s, 4 58; of 16 MiB 63, 50
_SEVERAL_CHANNELS = 2
# What goes one way only waits for nothing: broadcast of 4 MiB, 4 channels by 1M with threads 220
# us, 2 by 512K 390, of 16 MiB 4 by 2M 578, by 1M 895; at 1 MiB threads lose.
_MESSAGES_ROOTED = (
    (256 * _K, 1, 256 * _K),
    (_M, 2, 512 * _K),
    (2 * _M, 2, _M),
    (8 * _M, 4, _M),
    (_ANY, 4, 2 * _M),
)
# Where a rank passes on what it received, one message of a chunk can be copied while the GPU works
# on the other: allreduce of 16 MiB by 1M in two slices 3.6, of 64 MiB by 2M 7.0; of 4 MiB by 512K
# 2.9; at 1 MiB it gains nothing.
_SLICED_FROM = 4 * _M
# Where loops follow each other through three or four ranks: few and large messages, which threads
# receive. Chains of four, broadcast and reduce: 1 MiB 1 channel by 1M 109, 118, 2 by 256K 181, 165;
# 4 MiB 2 by 1M 365, 384, 4 by 1M 397, 411, by 256K 702, 708; 8 MiB 2 by 1M 660, 619, 4 by 320K
# 1410, 1640; 16 MiB 2 by 1M 1124, 1253, 4 by 640K 3871, 3876; 64 MiB 2 by 2M 3193, 2939, by 1M
# 3431, 3421, 4 by 1M 4355, 4293, by 2M 5902, 5631; 256 MiB 2 by 2M 10200, 11600, by 1M 14200,
# 14300.
_MESSAGES_PIPELINED = ((256 * _K, 1, 256 * _K), (_M, 1, _M), (32 * _M, 2, _M), (_ANY, 2, 2 * _M))
# Through more ranks, or where messages only join hosts, not measured: the first message is waited
# for at every hop, so it is small.
_LEAST_ONE_WAY, _STEP = 256 * _K, 64 * _K


def simple_knobs(
    size_bytes: int,
    block_bytes: int,
    *,
    ranks: int,
    tracks: int,
    peers: int,
    hops: int,
    is_rooted: bool,
    is_pipelined: bool,
) -> tuple[int, int, int]:
    """Channels, bytes of a message at most, and slices of a message's chunk.

    block_bytes: of a chunk over all channels; tracks of a rank; peers of one that reaches all of
    them by messages, otherwise 0: then the same channels also pass what stays on a host; hops of a
    loop; is_rooted: what the collective is; is_pipelined: loops follow each other through the
    ranks.

    >>> simple_knobs(
    ...     64 << 20,
    ...     16 << 20,
    ...     ranks=4,
    ...     tracks=1,
    ...     peers=1,
    ...     hops=6,
    ...     is_rooted=False,
    ...     is_pipelined=False,
    ... )
    (4, 1048576, 2)
    >>> simple_knobs(
    ...     16 << 20,
    ...     16 << 20,
    ...     ranks=4,
    ...     tracks=1,
    ...     peers=1,
    ...     hops=3,
    ...     is_rooted=True,
    ...     is_pipelined=True,
    ... )
    (2, 1048576, 1)
    """
    is_measured = is_pipelined and peers > 0 and ranks in FEW_RANKS
    table = (
        _MESSAGES_PIPELINED
        if is_measured
        else _MESSAGES_ROOTED
        if is_rooted
        else _unrooted(ranks, tracks, peers, hops)
    )
    channels, largest = next(
        (channels, largest) for most, channels, largest in table if size_bytes <= most
    )
    if hops == 1 and peers > 1:
        channels = min(channels, _SEVERAL_CHANNELS)
    if is_pipelined and not is_measured:
        largest = max(
            _LEAST_ONE_WAY, min(largest, block_bytes // channels // (2 * hops)) // _STEP * _STEP
        )
    return (
        channels,
        largest,
        2 if hops > 1 and not is_pipelined and size_bytes >= _SLICED_FROM else 1,
    )


def _unrooted(ranks: int, tracks: int, peers: int, hops: int) -> _Table:
    """What says how many channels, and how large messages, where all ranks do the same."""
    if not peers:
        return _MESSAGES
    if hops == 1 and tracks > 1:
        return (
            _MESSAGES_DUPLEX_TWO_RANKS
            if ranks == 2
            else _MESSAGES_DUPLEX_ONE_PEER
            if peers == 1
            else _MESSAGES_DUPLEX
        )
    if hops == 1:
        return _MESSAGES_ONE_PEER if peers == 1 else _MESSAGES_SEVERAL_PEERS
    return _MESSAGES if ranks == 2 else _MESSAGES_MANY_RANKS
