"""Who may connect to a sweep that starts its own ranks."""

import os
import secrets
import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.core.errors import RankLostError
from collbench.launch import mpirun
from collbench.launch.mpirun import HELLO, MpirunWorkerGroup

KEY = secrets.token_bytes(mpirun.KEY_BYTES)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0collbench-test-{secrets.token_hex(8)}")
        listening.listen()
        yield listening


def connect(listener: socket.socket, hello: bytes) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.connect(listener.getsockname())
    end.sendall(hello)
    return end


def group(code: int | None) -> Any:
    """One whose mpirun runs, or has ended so."""
    made: Any = object.__new__(MpirunWorkerGroup)
    made._mpirun = SimpleNamespace(wait=lambda timeout: None, poll=lambda: code)
    made._stderr_lines = list
    return made


def test_strangers_and_silent_ones_are_closed_and_keep_no_rank_out(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpirun, "_HELLO_S", 0.1)
    hello = KEY + HELLO.pack(0, 42)
    wrong = bytes(mpirun.KEY_BYTES) + HELLO.pack(0, 1)
    strangers = [connect(listener, said) for said in (b"", KEY[:5], hello[:-1], wrong)]
    rank = connect(listener, hello)
    Connection(os.dup(rank.fileno())).send("")
    connections, pids = group(None)._receive(listener, KEY, 1)
    assert (len(connections), pids) == (1, [42])
    assert [end.recv(1) for end in strangers] == [b""] * 4
    for end in (*strangers, rank, *connections):
        end.close()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        # as Open MPI's does by a signal: its code says nothing, and MPI may well be there
        (1, "mpirun ended while it started 2 ranks, without a word"),
        (None, "rank 1 is gone"),
    ],
)
def test_what_ends_before_mpi_has_started_is_a_loss(
    listener: socket.socket, code: int | None, message: str
) -> None:
    if code is None:
        connect(listener, KEY + HELLO.pack(1, 42)).close()
    with pytest.raises(RankLostError) as lost:
        group(code)._receive(listener, KEY, 2)
    assert (lost.value.exit_code, lost.value.message) == (4, message)
