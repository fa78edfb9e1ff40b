"""Measures what the estimate wants, until nothing is wanted or the budget is spent."""

from collections.abc import Callable
from dataclasses import dataclass, field

from collbench.analysis.tomography.estimate import estimate
from collbench.analysis.tomography.model import Inference
from collbench.results.flows import FlowSet, FlowSource

_MOST_TURNS = 20  # every turn wants something new: the steps and their repeats are fewer


@dataclass(slots=True)
class FlowSearch:
    """The measurements of a source, and what they say. clock: seconds since the budget began."""

    source: FlowSource
    clock: Callable[[], float]
    budget_s: float
    repeats: dict[FlowSet, list[list[float]]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The measurements until now, each repeat counted."""
        return sum(map(len, self.repeats.values()))

    def run(self, step: Callable[[int, int], None] = lambda done, of: None) -> Inference:
        """Measure and judge. step: told how many measurements of a turn are done, and of how many.

        However it ends, `repeats` has what was measured until then.
        """
        for _ in range(_MOST_TURNS):
            inference = self.judge()
            left = self._left(inference)
            if not left:
                break
            for done, flows in enumerate(left):
                if self.clock() >= self.budget_s:
                    return self.judge()
                step(done, len(left))
                self.repeats.setdefault(flows, []).append(self.source.rates(flows))
        return self.judge()

    def judge(self) -> Inference:
        """What the measurements say until now."""
        source = self.source
        return estimate(self.repeats, source.gpus, source.blocks, source.peers, source.own)

    def _left(self, inference: Inference) -> list[FlowSet]:
        """What to measure, a repeat of everything before the next of anything: drift is shared."""
        missing = {
            flows: range(len(self.repeats.get(flows, ())), times)
            for flows, times in inference.wanted.items()
        }
        turns = max((times.stop for times in missing.values()), default=0)
        return [flows for turn in range(turns) for flows in missing if turn in missing[flows]]
