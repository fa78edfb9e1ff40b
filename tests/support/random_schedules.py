"""Valid schedules that nobody registered: random trees, random hops, random tracks, drawn by a
generator of random numbers or by hypothesis.
"""

from random import Random

from hypothesis import strategies as st

from collbench.core.collectives import OpName
from collbench.schedules.ir import Schedule
from tests.support.written import schedule_of

BLOCKED: tuple[OpName, ...] = ("allgather", "alltoall", "reducescatter")


def draw_allreduce(chance: Random, ranks: int = 0) -> Schedule:
    """Every chunk goes up a random tree of its own and down another, on tracks shared or apart,
    some results through scratch. ranks 0: any number.
    """
    n, chunks = ranks or chance.randint(2, 6), chance.randint(1, 3)
    apart = chance.random() < 0.5
    through_scratch = chance.random() < 0.5
    trees = []
    for _ in range(chunks):
        order = list(range(n))
        chance.shuffle(order)
        trees.append({order[k]: order[chance.randrange(k)] for k in range(1, n)} | {order[0]: -1})

    if apart and through_scratch:
        apart = False  # a result that passes through scratch needs the order of its track

    def text(rank: int) -> str:
        up, down = list[str](), list[str]()
        for chunk, parents in enumerate(trees):
            children = [child for child, parent in parents.items() if parent == rank]
            collect = " ".join(f"<{child}up{chunk}" for child in children)
            spread = " ".join(f">{child}down{chunk}" for child in children)
            if parents[rank] < 0:
                up.append(f"i{chunk} {collect} =o{chunk} {spread}")
                continue
            send = f">{parents[rank]}up{chunk}"
            if through_scratch and collect:
                up += [f"i{chunk} {collect} =t{chunk}", f"t{chunk} {send}"]
            else:
                up.append(f"i{chunk} {collect} {send}")
            down.append(f"<{parents[rank]}down{chunk} =o{chunk} {spread}")
        if apart:
            both = ("up", up), ("down", down)
            return " / ".join(
                f"{name}{i}: {one}" for name, rounds in both for i, one in enumerate(rounds)
            )
        return f"up: {' | '.join(up)} / down: {' | '.join(down)}"

    return schedule_of([text(rank) for rank in range(n)], "allreduce", name="random")


def draw_blocks(chance: Random, ranks: int = 0) -> Schedule:
    """Every block of an allgather, alltoall or scatter takes a random path, relayed through
    scratch, all blocks of a hop in one round.
    """
    op: OpName = chance.choice(BLOCKED)
    n = ranks or chance.randint(2, 5)
    relays = {(src, dst): chance.randrange(n) for src in range(n) for dst in range(n) if src != dst}

    def relay_of(src: int, dst: int) -> int | None:
        relay = relays[src, dst]
        return None if relay in (src, dst) else relay

    def text(rank: int) -> str:
        own = ["i0" if op == "allgather" else f"i{dst}" for dst in range(n)]
        first, second = list[str](), list[str]()
        for src, dst in relays:
            relay, at, scratch = relay_of(src, dst), f"{src}.{dst}", f"t{src * n + dst}"
            if rank == src:
                first.append(f"{own[dst]} >{dst if relay is None else relay}a{at}")
            if rank == relay:
                first.append(f"<{src}a{at} ={scratch}")
                second.append(f"{scratch} >{dst}b{at}")
        blocks = [src for src in range(n) if src != rank]
        arrivals = [
            f"<{src}a{src}.{rank}"
            if relay_of(src, rank) is None
            else f"<{relays[src, rank]}b{src}.{rank}"
            for src in blocks
        ]
        if op == "reducescatter":
            last = [f"i{rank} {' '.join(arrivals)} =o0"]
        else:
            last = [f"{edge} =o{block}" for block, edge in zip(blocks, arrivals, strict=True)]
            last.insert(0, f"{own[rank]} =o{rank}")
        return " | ".join(map(", ".join, (first, second, last)))

    return schedule_of([text(rank) for rank in range(n)], op, name="random")


def draw_exchange(chance: Random) -> Schedule:
    """An allreduce in which all ranks send each other all chunks, each some of them ahead of what
    it receives.
    """
    n, chunks = chance.randint(2, 3), chance.randint(1, 9)
    ahead = [chance.randint(0, chunks) for _ in range(n)]

    def text(rank: int) -> str:
        peers = [peer for peer in range(n) if peer != rank]
        sends = [f"i{c} " + " ".join(f">{peer}x" for peer in peers) for c in range(chunks)]
        takes = [f"i{c} {' '.join(f'<{peer}x' for peer in peers)} =o{c}" for c in range(chunks)]
        rounds = sends[: ahead[rank]]
        for c in range(chunks):
            rounds += [*sends[ahead[rank] + c : ahead[rank] + c + 1], takes[c]]
        return " | ".join(rounds)

    return schedule_of([text(rank) for rank in range(n)], "allreduce", name="random")


def random_allreduce(ranks: int = 0) -> st.SearchStrategy[Schedule]:
    """Schedules of draw_allreduce."""
    return st.randoms(use_true_random=False).map(lambda chance: draw_allreduce(chance, ranks))


def random_blocks(ranks: int = 0) -> st.SearchStrategy[Schedule]:
    """Schedules of draw_blocks."""
    return st.randoms(use_true_random=False).map(lambda chance: draw_blocks(chance, ranks))


random_schedule = st.one_of(random_allreduce(), random_blocks())
