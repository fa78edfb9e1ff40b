"""Ranks of another backend in processes of their own, started with variables of their own: for a
library that reads its knobs once a process.

A rank's part here holds one child, hands it the calls and hands its answers back; which backend it
is, this module does not know.
"""

import os

from collbench.core.errors import HangError
from collbench.core.group import Group, Rank, RankContext, RankT
from collbench.core.launcher import without_launcher
from collbench.core.peers import Variables
from collbench.launch.child import END_S, Child
from collbench.launch.driver import ServedGroup
from collbench.launch.server import rank_name

BEGIN_S = 30.0  # to start a process on a busy machine
MARGIN_S = 5.0  # what a rank may take beyond its child


class ParentRank(Rank):
    """One rank's part: the child that it started."""

    def __init__(self, context: RankContext) -> None:
        self.context = context
        self._child: Child | None = None

    def begin(self, rank: str, variables: Variables) -> None:
        """Start the child, a rank of the class of that name."""
        self.close()
        environment = {**without_launcher(os.environ), **dict(variables)}
        name = f"the process of rank {self.context.rank}"
        self._child = Child(name, rank, self.context, environment)

    def forward(self, method: str, args: tuple[object, ...], timeout_s: float) -> object:
        """What the child answers (see Child.answer)."""
        assert self._child is not None
        self._child.ask(method, *args)
        return self._child.answer(timeout_s, f" in {method}")

    def close(self) -> None:
        """End the child: nothing of it is worth saving."""
        if self._child is not None:
            self._child.end()
            self._child = None


class ChildWorkerGroup(ServedGroup[RankT]):
    """The driver's side: a worker group whose ranks each forward their calls to a child."""

    def __init__(self, group: Group, rank: type[RankT], n: int, variables: Variables) -> None:
        self._workers, self._is_lost = group.gpu_workers(ParentRank, n), False
        self._workers.call(ParentRank.begin, rank_name(rank), variables, timeout_s=BEGIN_S)

    def _call(self, method: str, args: tuple[object, ...], timeout_s: float) -> list[object]:
        try:
            return self._workers.call(
                ParentRank.forward, method, args, timeout_s, timeout_s=timeout_s + MARGIN_S
            )
        except HangError:
            self._is_lost = True
            raise

    def close(self) -> None:
        """End the children; those of ranks that are lost end with them."""
        if not self._is_lost:
            # under a launcher parts outlive their worker group
            self._workers.call(ParentRank.close, timeout_s=END_S + MARGIN_S)
        self._workers.close()
