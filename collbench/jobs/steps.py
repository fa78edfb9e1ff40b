"""The steps of a job, found by repetition, and how much of a step is communication.

Calls of one step differ in order from step to step where threads race, and exchanges differ in
size. So what repeats is the multiset of calls in a window, and an exchange counts without its size.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from collbench.jobs.model import Call, Job, Span

_MOST_CALLS = 20_000  # at the end of the job, by which the length of a step is found
_MOST_TOKENS = 64  # kinds of calls that are told apart
_RAREST = 8  # of them, whose distances are tried as lengths
_MOST_OCCURRENCES = 64  # of one kind in a step
_JITTER = 2  # calls by which races shift a distance
_DIVISORS = (2, 3, 5, 7)
# Times as many calls that may differ in the windows of a part of a length, and so many more: a call
# that comes once a step differs by 4 / divisor calls in windows that are a part of the step.
_AS_GOOD, _FEW = 1.5, 0.5
_LEAST_SHARE = 0.75  # of all calls that steps must be: layers of one step are alike, too
_SAME_STEP = 0.25  # of the calls of a window that may differ from those of the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The calls from `first` on are `number` steps of `length` calls each; the length is a mean
    where the input names the steps. is_found: False where nothing repeats, and all calls are taken
    as one step.
    """

    first: int
    length: float
    number: int
    last: int
    is_found: bool = True

    def calls(self, job: Job) -> Sequence[Call]:
        """The calls of all steps."""
        return job.calls[self.first : self.last]


def steps_of(job: Job) -> Steps:
    """The steps that the input names, else those that repeat, else all calls as one step.

    >>> calls = [
    ...     Call(op="allreduce", size_bytes=size, dtype="float32", ranks=2)
    ...     for size in [8, *(64, 64, 32) * 4, 16]
    ... ]
    >>> found = steps_of(Job(name="", source="", calls=calls))
    >>> found.first, found.length, found.number
    (1, 3, 4)
    """
    if marked := _marked(job):
        return marked
    count = len(job.calls)
    if not job.step_calls:
        names = _names(job.calls)
        length = _length(names[-_MOST_CALLS:])
        first, number = _run(names, length) if length else (0, 0)
        last = first + number * length
        if number > 1 and last - first >= _LEAST_SHARE * count:
            return Steps(first=first, length=length, number=number, last=last)
    is_found = bool(job.step_calls)
    return Steps(first=0, length=count, number=1, last=count, is_found=is_found)


def _marked(job: Job) -> Steps | None:
    """The steps that the input names and that have calls."""
    inside = [
        number
        for number, call in enumerate(job.calls)
        if call.start_us is not None
        and any(start <= call.start_us < end for start, end in job.marks)
    ]
    if not inside:
        return None
    used = sum(
        any(start <= (job.calls[number].start_us or 0.0) < end for number in inside)
        for start, end in job.marks
    )
    first, last = inside[0], inside[-1] + 1
    return Steps(first=first, length=(last - first) / used, number=used, last=last)


def _names(calls: Sequence[Call]) -> "NDArray[np.int64]":
    """A number for each call: calls that may stand for each other in two steps have the same."""
    numbers: dict[tuple[object, ...], int] = {}
    names = [
        numbers.setdefault(
            (call.op, call.group, call.dtype)
            + (() if call.op == "alltoall" else (call.size_bytes, call.redop)),
            len(numbers),
        )
        for call in calls
    ]
    common = {name: place for place, (name, _) in enumerate(Counter(names).most_common())}
    return np.array([min(common[name], _MOST_TOKENS - 1) for name in names], dtype=np.int64)


def _length(names: "NDArray[np.int64]") -> int:
    """The calls of a step; 0 if nothing repeats.

    Of all lengths that are tried, the one whose windows differ by the least share. Several steps
    are as good as one, so it is divided while the windows differ by no more calls.
    """
    sums = _sums(names)
    errors: dict[int, float] = {}
    for length, first, last in _candidates(names):
        if 0 < 2 * length <= last - first:
            error = float(_differences(sums[:, first : last + 1], length).mean())
            errors[length] = min(error, errors.get(length, 1.0))
    if not errors:
        return 0
    length = min(errors, key=lambda one: (errors[one], one))
    if errors[length] > _SAME_STEP:
        return 0
    while shorter := [
        part
        for divisor in _DIVISORS
        if (part := round(length / divisor)) in errors
        and errors[part] * 2 * part <= _AS_GOOD * errors[length] * 2 * length + _FEW
    ]:
        length = shorter[0]
    return length


def _candidates(names: "NDArray[np.int64]") -> Iterator[tuple[int, int, int]]:
    """Lengths that could be those of a step, each with the part of the calls in which it should
    hold: the distances of the rarest calls that come twice or more, and where these are.
    """
    rare = [name for name, times in reversed(Counter(names.tolist()).most_common()) if times > 1]
    for name in rare[:_RAREST]:
        places = np.flatnonzero(names == name)
        for step in range(1, min(_MOST_OCCURRENCES, len(places) - 1) + 1):
            middle = int(np.median(places[step:] - places[:-step]))
            for length in range(middle - _JITTER, middle + _JITTER + 1):
                half = -(-length // 2)
                last = min(len(names), int(places[-1]) + 1 + half)
                yield length, max(0, int(places[0]) - half), last


def _sums(names: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """How many calls of each kind come before each place: [kind, place]."""
    kinds = np.arange(int(names.max()) + 1)[:, None]
    before = np.zeros((len(kinds), len(names) + 1), dtype=np.int64)
    np.cumsum(names[None, :] == kinds, axis=1, out=before[:, 1:])
    return before


def _differences(sums: "NDArray[np.int64]", length: int) -> "NDArray[np.float64]":
    """The share of the calls in which the window behind each place differs from the next one."""
    twice = 2 * length
    ahead = sums[:, twice:] - 2 * sums[:, length:-length] + sums[:, :-twice]
    shares: NDArray[np.float64] = np.abs(ahead).sum(axis=0) / twice
    return shares


def _run(names: "NDArray[np.int64]", length: int) -> tuple[int, int]:
    """The longest part of the job that repeats: its first call, and the number of steps."""
    differ = _differences(_sums(names), length) > _SAME_STEP
    edges = [-1, *np.flatnonzero(differ).tolist(), len(differ)]
    start, end = max(pairwise(edges), key=lambda pair: pair[1] - pair[0])
    if end - start < 2:
        return 0, 0
    first = _sharpened(names, start + 1, length)
    last = end - 1 + 2 * length  # the end of the last window that is like the one before
    return first, (last - first) // length


def _sharpened(names: "NDArray[np.int64]", first: int, length: int) -> int:
    """The first place from `first` on whose call is repeated one step later: what comes before the
    steps is in the first windows, too.
    """
    for place in range(first, min(first + length, len(names) - length)):
        if names[place] == names[place + length]:
            return place
    return first


# Times


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Microseconds of a step, of the input's own times. communicating: in which any call ran, None
    where calls have no times. exposed: in which a call ran and nothing computed; computing: in
    which anything computed; both None where that is not known.
    """

    step: float
    communicating: float | None = None
    computing: float | None = None
    exposed: float | None = None

    @property
    def hideable(self) -> float | None:
        """How much of what is exposed there is computation for that hides nothing yet; where
        computation is not known, the time without calls counts as computation.
        """
        if self.communicating is None:
            return None
        if self.computing is None or self.exposed is None:
            return min(self.communicating, max(0.0, self.step - self.communicating))
        hidden = self.communicating - self.exposed
        return min(self.exposed, max(0.0, self.computing - hidden))


def step_times(job: Job, steps: Steps) -> StepTimes | None:
    """The times of a step; None where the input has none, or only one step has."""
    calls = steps.calls(job)
    starts = [call.start_us for call in calls if call.start_us is not None]
    if len(starts) != len(calls) or not calls:
        return None
    if job.marks:
        window = (starts[0], max(end for start, end in job.marks if start <= starts[-1]))
        window = min(start for start, end in job.marks if end > starts[0]), window[1]
        step = median(
            end - start for start, end in job.marks if any(start <= one < end for one in starts)
        )
    elif steps.number > 1:
        length = round(steps.length)
        step = median(
            after - before for before, after in zip(starts, starts[length:], strict=False)
        )
        window = starts[0], starts[0] + step * steps.number
    else:
        return None
    spans = [
        (start, start + (call.duration_us or 0.0))
        for start, call in zip(starts, calls, strict=True)
    ]
    if not all(call.duration_us is not None for call in calls):
        return StepTimes(step=step)
    busy = joined(spans)
    communicating = length_of(busy) / steps.number
    if not job.computing:
        return StepTimes(step=step, communicating=communicating)
    computing = joined(clipped(job.computing, window))
    both = length_of(busy) + length_of(computing) - length_of(joined([*busy, *computing]))
    return StepTimes(
        step=step,
        communicating=communicating,
        computing=length_of(computing) / steps.number,
        exposed=communicating - both / steps.number,
    )


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans without their overlaps, in order.

    >>> joined([(3, 5), (0, 2), (1, 2.5)])
    [(0, 2.5), (3, 5)]
    """
    whole: list[Span] = []
    for start, end in sorted(spans):
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((start, end))
    return whole


def clipped(spans: Iterable[Span], window: Span) -> list[Span]:
    """What of the spans is inside a window."""
    return [
        (max(start, window[0]), min(end, window[1]))
        for start, end in spans
        if start < window[1] and end > window[0]
    ]


def length_of(spans: Iterable[Span]) -> float:
    """The time that spans without overlaps take."""
    return sum(end - start for start, end in spans)
