"""The words of drawn schedules: names of chunks and sums, and what each rank does in each step."""

from collections.abc import Iterable, Iterator, Sequence

from collbench.core.collectives import collective
from collbench.core.text import listed, runs
from collbench.schedules.playback import CellKey, Flight, Playback, StepEvent
from collbench.schedules.verify.proof import Value

# messages of a rank in one step that are told one by one; of more, only to whom
_TOLD_APART = 3


def members(mask: int) -> list[int]:
    """The ranks in a bit mask.

    >>> members(0b1011)
    [0, 1, 3]
    """
    return [rank for rank in range(mask.bit_length()) if mask >> rank & 1]


def ranges(numbers: Iterable[int], joint: str = ", ") -> str:
    """Numbers in short.

    >>> ranges([4, 0, 1, 2, 6, 7]), ranges([0, 1, 3], "+")
    ('0-2, 4, 6, 7', '0+1+3')
    """
    return joint.join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else joint.join(map(str, run))
        for run in runs(numbers)
    )


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks in a sentence.

    >>> ranks_text([2]), ranks_text([0, 1]), ranks_text([0, 1, 2, 5])
    ('rank 2', 'ranks 0 and 1', 'ranks 0-2 and 5')
    """
    numbers = sorted(set(ranks))
    return f"rank{'s' * (len(numbers) != 1)} {listed(ranges(numbers).split(', '))}"


class StepWords:
    """Names and sentences of one playback. hosts: of each rank, if there are several."""

    def __init__(self, played: Playback, hosts: Sequence[int] = ()) -> None:
        self.played, self._hosts = played, hosts
        self.schedule = played.schedule
        self.full = (1 << played.schedule.n) - 1
        what = collective(played.schedule.op)
        self.noun = "chunk" if what.is_interleaved else "block"
        count = played.schedule.chunks["in"]
        cut = f", cut into {count} chunks" if what.is_interleaved and count > 1 else ""
        cut += " a loop" * (cut != "" and len(played.loops) > 1)
        self.start, self.goal = (
            f"{text[0].upper()}{text[1:]}." for text in (what.start + cut, what.goal)
        )

    def rank_name(self, rank: int) -> str:
        """A rank as the title of its cells: its number, its host, whether it is the root."""
        parts = [f"rank {rank}"]
        if collective(self.schedule.op).is_rooted and rank == self.schedule.root:
            parts.append("root")
        if self._hosts:
            parts.append(f"host {self._hosts[rank]}")
        return ", ".join(parts)

    def cell(self, key: CellKey, rank: int) -> str:
        """The name of a cell, in a few letters."""
        if not self.played.is_crossed:
            name = str(key.source if self.played.has_sources else key.chunk)
        elif key.source == rank:
            name = f"→{key.chunk}"
        else:
            name = f"{key.source}→" if key.chunk == rank else f"{key.source}→{key.chunk}"
        return self._in_part(name, key.piece)

    def _in_part(self, name: str, piece: int) -> str:
        """The name of chunks with their loop before it and their slice behind it."""
        loop, one = self.played.part_of(piece)
        return f"{loop}.{name}{one}" if loop else f"{name}{one}"

    def example(self) -> str:
        """What the name of a message means, in a sentence."""
        last = sum(self.played.loops) - 1
        chunk = "0→1" if self.played.is_crossed else "0"
        part = self._of_part(f"{self.noun} {chunk}", last)
        return self._example() + f' "{self._in_part(chunk, last)}" is {part}.' * (last > 0)

    def _example(self) -> str:
        noun = self.noun
        if self.played.is_crossed:
            return (
                '"0→1" is the block of rank 0 for rank 1; in the cells of a rank "→1" is its own'
                ' for rank 1, and "2→" that of rank 2 for it.'
            )
        if self.played.has_sources:
            return f'"1" is the {noun} of rank 1.'
        if not self.played.is_reduction:
            return f'"0" is {noun} 0.'
        if self.schedule.n == 2:
            return f'"0: 1" is {noun} 0 of rank 1, "0: all" the sum.'
        return f'"0: 1+2" is {noun} 0, the sum of ranks 1 and 2.'

    def label(self, flight: Flight) -> str:
        """A message in a few letters: its chunks, and whose contributions are in them."""
        what = self.short(flight.values)
        masks = {value.mask for value in flight.values}
        if not self.played.is_reduction or len(masks) > 1:
            return what
        return f"{what}: {self._sum(masks.pop())}"

    def short(self, values: Sequence[Value]) -> str:
        """The chunks of a message in a few letters."""
        keys = [self.played.key(value) for value in values]
        if self.played.is_crossed:
            text = ", ".join(f"{source}→{chunk}" for chunk, source, _ in sorted(keys))
        else:
            text = ranges(key.source if self.played.has_sources else key.chunk for key in keys)
        return self._in_part(text, values[0].piece)

    def _sum(self, mask: int) -> str:
        return "all" if mask == self.full else ranges(members(mask), "+")

    def names(self, values: Sequence[Value]) -> str:
        """Chunks in a sentence, without whose contributions are in them."""
        return self._of_part(self._chunks(values), values[0].piece)

    def _of_part(self, chunks: str, piece: int) -> str:
        loop, one = self.played.part_of(piece)
        return f"slice {one} of " * bool(one) + chunks + f" of loop {loop}" * bool(loop)

    def _chunks(self, values: Sequence[Value]) -> str:
        keys = [self.played.key(value) for value in values]
        nouns = f"{self.noun}{'s' * (len(keys) != 1)}"
        if self.played.is_crossed:
            return f"{nouns} {', '.join(f'{key.source}→{key.chunk}' for key in sorted(keys))}"
        if self.played.has_sources:
            return f"the {nouns} of {ranks_text(key.source for key in keys)}"
        chunks = listed(ranges(key.chunk for key in keys).split(", "))
        if not self.played.is_reduction and self.schedule.chunks["in"] == 1:
            return f"the {self.noun}"
        return f"{nouns} {chunks}"

    def contribution(self, values: Sequence[Value], rank: int) -> str:
        """Whose contributions are in chunks that a rank sends; nothing if that is no question."""
        masks = {value.mask for value in values}
        if not self.played.is_reduction:
            return ""
        if len(masks) > 1:
            return "partial sums"
        (mask,) = masks
        if mask == 1 << rank:
            return "its own"
        return self.total(mask)

    def total(self, mask: int) -> str:
        """A sum in a sentence."""
        if mask == self.full:
            return "the sum of all"
        ranks = members(mask)
        return f"rank {ranks[0]}'s" if len(ranks) == 1 else f"the sum of {ranks_text(ranks)}"

    def heading(self, number: int) -> str:
        """What a step is called: 0 is the start."""
        last = len(self.played.stops)
        if not number:
            return "Start"
        ports = sorted({flight.port for flight in self.leaving(number)})
        return f"Step {number} of {last}{': ' if ports else ''}{', '.join(ports)}"

    def leaving(self, number: int) -> list[Flight]:
        """The messages that set out in a step."""
        begin, end = self.span(number)
        return [flight for flight in self.played.flights if begin <= flight.start < end]

    def span(self, number: int) -> tuple[float, float]:
        """Begin and end of a step, from 1."""
        stops = (0.0, *self.played.stops)
        return stops[number - 1], stops[number]

    def step(self, number: int) -> list[str]:
        """What each rank does in a step, from 1: a sentence for each."""
        return [
            f"Rank {rank} {'; '.join(self._deeds(rank, number)) or self._idles(rank, number)}."
            for rank in range(self.schedule.n)
        ]

    def _idles(self, rank: int, number: int) -> str:
        _, end = self.span(number)
        is_busy_later = any(
            event.place.program == rank and max(event.start, event.end) > end
            for event in self.played.events
        )
        return "waits" if is_busy_later else "is done"

    def _deeds(self, rank: int, number: int) -> Iterator[str]:
        begin, end = self.span(number)
        is_last = number == len(self.played.stops)
        mine = [event for event in self.played.events if event.place.program == rank]
        kept = [
            event
            for event in mine
            if not event.step.recv
            and event.step.dst is not None
            and (begin <= event.start < end or (is_last and event.start == end))
        ]
        for piece in dict.fromkeys(event.value.piece for event in kept):
            values = [event.value for event in kept if event.value.piece == piece]
            yield f"keeps {self.names(values)}"
        yield from self._sends(
            rank, [flight for flight in self.leaving(number) if flight.source == rank]
        )
        early = [
            flight
            for flight in self.played.flights
            if flight.target == rank and begin < flight.end <= end < flight.taken
        ]
        if early:
            senders = ranks_text(flight.source for flight in early)
            yield (
                f"gets a message of {senders} that waits"
                if len(early) == 1
                else (f"gets messages of {senders} that wait")
            )
        yield from self._receives(
            [event for event in mine if event.step.recv and begin < event.start <= end]
        )

    def _sends(self, rank: int, flights: Sequence[Flight]) -> Iterator[str]:
        by_content: dict[str, list[int]] = {}
        for flight in flights:
            about = self.contribution(flight.values, rank)
            content = self.names(flight.values) + (f" ({about})" if about else "")
            by_content.setdefault(content, []).append(flight.target)
        if len(by_content) > _TOLD_APART:
            targets = {target for found in by_content.values() for target in found}
            yield f"sends {len(flights)} different messages to {ranks_text(targets)}"
            return
        for content, found in by_content.items():
            yield f"sends {content} to {ranks_text(found)}"

    def _receives(self, events: Sequence[StepEvent]) -> Iterator[str]:
        groups: dict[tuple[object, ...], list[StepEvent]] = {}
        for event in events:
            own = event.step.src[0].buffer if event.step.src else ""
            peers = tuple(edge.peer for edge in event.step.recv)
            is_copy = len(event.step.src) + len(peers) == 1
            mask = event.value.mask if self.played.is_reduction else 0
            key = ((0,) if is_copy else peers, own, mask, event.value.piece)
            groups.setdefault(key, []).append(event)
        for group in groups.values():
            yield self._received(group)

    def _received(self, events: Sequence[StepEvent]) -> str:
        step, mask = events[0].step, events[0].value.mask
        peers = {edge.peer for event in events for edge in event.step.recv}
        text = f"receives {self.names([event.value for event in events])} from {ranks_text(peers)}"
        if not self.played.is_reduction:
            return text
        if len(step.src) + len(step.recv) == 1:
            return f"{text} ({self.total(mask)})"
        own = "its own" if step.src and step.src[0].buffer == "in" else "what it has"
        return f"{text}, adds {own if step.src else 'them up'}: {self.total(mask)}"
