"""Valid schedules that nobody registered: random trees, random hops, random tracks, drawn by a
generator of random numbers or by hypothesis.
"""

from random import Random

from hypothesis import strategies as st

from collbench.core.collectives import OpName
from collbench.core.world import World
from collbench.schedules.ir import Edge, Operand, Schedule, Step, Track, build

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

    def program(world: World, rank: int) -> tuple[Track, ...]:
        up, down = [], []
        for chunk, parents in enumerate(trees):
            children = [child for child, parent in parents.items() if parent == rank]
            collect = tuple(Edge(child, f"up{chunk}") for child in children)
            spread = tuple(Edge(child, f"down{chunk}") for child in children)
            own, result = (Operand("in", chunk),), Operand("out", chunk)
            if parents[rank] < 0:
                up.append((Step(src=own, recv=collect, dst=result, send=spread),))
                continue
            send = (Edge(parents[rank], f"up{chunk}"),)
            if through_scratch and collect:
                scratch = Operand("tmp", chunk)
                up += [
                    (Step(src=own, recv=collect, dst=scratch),),
                    (Step(src=(scratch,), send=send),),
                ]
            else:
                up.append((Step(src=own, recv=collect, send=send),))
            down.append(
                (Step(recv=(Edge(parents[rank], f"down{chunk}"),), dst=result, send=spread),)
            )
        if apart:
            return tuple(
                Track(name=f"{name}{i}", rounds=(steps,))
                for name, rounds in (("up", up), ("down", down))
                for i, steps in enumerate(rounds)
            )
        return Track(name="up", rounds=tuple(up)), Track(name="down", rounds=tuple(down))

    if apart and through_scratch:
        apart = False  # a result that passes through scratch needs the order of its track
    return build("allreduce", "random", program, World(n=n))


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

    def program(world: World, rank: int) -> tuple[Track, ...]:
        def source(dst: int) -> Operand:
            return Operand("in", 0 if op == "allgather" else dst)

        first, second, last = [], [], []
        for src, dst in relays:
            relay = relay_of(src, dst)
            scratch = Operand("tmp", src * n + dst)
            if rank == src:
                first.append(
                    Step(
                        src=(source(dst),),
                        send=(Edge(dst if relay is None else relay, f"a{src}.{dst}"),),
                    )
                )
            if rank == relay:
                first.append(Step(recv=(Edge(src, f"a{src}.{dst}"),), dst=scratch))
                second.append(Step(src=(scratch,), send=(Edge(dst, f"b{src}.{dst}"),)))
        arrivals = [
            (
                Edge(src, f"a{src}.{rank}")
                if relay_of(src, rank) is None
                else Edge(relays[src, rank], f"b{src}.{rank}")
            )
            for src in range(n)
            if src != rank
        ]
        if op == "reducescatter":
            last.append(
                Step(src=(Operand("in", rank),), recv=tuple(arrivals), dst=Operand("out", 0))
            )
        else:
            last.append(Step(src=(source(rank),), dst=Operand("out", rank)))
            blocks = [src for src in range(n) if src != rank]
            last += [
                Step(recv=(edge,), dst=Operand("out", block))
                for block, edge in zip(blocks, arrivals, strict=True)
            ]
        return (Track(name="main", rounds=(tuple(first), tuple(second), tuple(last))),)

    return build(op, "random", program, World(n=n))


def draw_exchange(chance: Random) -> Schedule:
    """An allreduce in which all ranks send each other all chunks, each some of them ahead of what
    it receives.
    """
    n, chunks = chance.randint(2, 3), chance.randint(1, 9)
    ahead = [chance.randint(0, chunks) for _ in range(n)]

    def program(world: World, rank: int) -> tuple[Track, ...]:
        edges = tuple(Edge(peer, "x") for peer in range(n) if peer != rank)
        sends = [(Step(src=(Operand("in", c),), send=edges),) for c in range(chunks)]
        takes = [
            (Step(src=(Operand("in", c),), recv=edges, dst=Operand("out", c)),)
            for c in range(chunks)
        ]
        rounds = sends[: ahead[rank]]
        for c in range(chunks):
            rounds += [*sends[ahead[rank] + c : ahead[rank] + c + 1], takes[c]]
        return (Track(name="main", rounds=tuple(rounds)),)

    return build("allreduce", "random", program, World(n=n))


def random_allreduce(ranks: int = 0) -> st.SearchStrategy[Schedule]:
    """Schedules of draw_allreduce."""
    return st.randoms(use_true_random=False).map(lambda chance: draw_allreduce(chance, ranks))


def random_blocks(ranks: int = 0) -> st.SearchStrategy[Schedule]:
    """Schedules of draw_blocks."""
    return st.randoms(use_true_random=False).map(lambda chance: draw_blocks(chance, ranks))


random_schedule = st.one_of(random_allreduce(), random_blocks())
