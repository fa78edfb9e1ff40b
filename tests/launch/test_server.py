"""The rank's side of a call: which methods a name reaches, and what becomes of errors."""

import pytest

from collbench.core.errors import CollbenchError, RefusedError, UnavailableError
from collbench.core.group import Rank, RankContext
from collbench.launch.server import perform, rank_class, rank_name


class DeviceError(Exception):
    """What a library raises when its device fails."""


class Counter(Rank):
    def __init__(self, context: RankContext) -> None:
        self.context, self.faults, self.field = context, (DeviceError,), 1

    def add(self, more: int) -> int:
        return self.context.rank + more

    def fail(self, error: Exception) -> None:
        raise error

    def _hidden(self) -> None: ...


RANK = Counter(RankContext(rank=3, n=4))


def test_a_class_of_ranks_is_found_by_its_name() -> None:
    assert rank_class(rank_name(Counter)) is Counter
    for name in ("collbench.launch.server:Reply", "collbench.launch.server:nothing"):
        with pytest.raises(CollbenchError, match="no class of ranks"):
            rank_class(name)


def test_a_public_method_of_the_class_is_called() -> None:
    assert perform(RANK, "add", (2,)).result == 5


@pytest.mark.parametrize("name", ["_hidden", "__init__", "field", "nothing"])
def test_nothing_else_is(name: str) -> None:
    reply = perform(RANK, name, ())
    assert reply.error is not None
    assert reply.error.message == f"Counter has no method {name}"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RefusedError("no"), RefusedError, "no"),
        (MemoryError(), UnavailableError, "fail failed: out of memory"),
        (DeviceError("lost"), UnavailableError, "fail failed: lost"),
        (ValueError("odd"), CollbenchError, "fail failed: ValueError: odd"),
    ],
)
def test_errors_become_replies(error: Exception, kind: type[CollbenchError], message: str) -> None:
    reply = perform(RANK, "fail", (error,))
    assert type(reply.error) is kind
    assert reply.error.message == message
