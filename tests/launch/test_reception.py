"""Who may connect to a sweep that starts its own ranks."""

import os
import secrets
import socket
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.launch import mpirun
from collbench.launch.mpirun import HELLO, MpirunWorkerGroup, _Reception

KEY = secrets.token_bytes(mpirun.KEY_BYTES)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0collbench-test-{secrets.token_hex(8)}")
        listening.listen()
        yield listening
        listening.shutdown(socket.SHUT_RDWR)


def connect(listener: socket.socket, hello: bytes) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.connect(listener.getsockname())
    end.sendall(hello)
    return end


def wait_for(reception: _Reception, ready: int) -> None:
    deadline = time.monotonic() + 20
    while reception.ready < ready and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reception.ready == ready


def test_strangers_and_silent_ones_keep_no_rank_out(listener: socket.socket) -> None:
    reception = _Reception(listener, KEY)
    silent = connect(listener, b"")
    short = connect(listener, KEY[:5])
    wrong = connect(listener, bytes(mpirun.KEY_BYTES) + HELLO.pack(0, 1))
    assert wrong.recv(1) == b""  # closed
    rank = connect(listener, KEY + HELLO.pack(0, 42))
    Connection(os.dup(rank.fileno())).send("")
    wait_for(reception, 1)
    assert (reception.pids, reception.lost, reception.problem) == ({0: 42}, set(), "")
    for end in (silent, short, wrong, rank):
        end.close()


def test_a_silent_one_is_closed(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun, "_HELLO_S", 0.1)
    _Reception(listener, KEY)
    with connect(listener, b"") as silent:
        assert silent.recv(1) == b""


def test_an_mpirun_that_ends_without_a_word_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Open MPI's does by a signal: its code says nothing, and MPI may well be there."""
    group = object.__new__(MpirunWorkerGroup)
    ended: Any = SimpleNamespace(wait=lambda timeout: None, poll=lambda: 1)
    monkeypatch.setattr(group, "_mpirun", ended, raising=False)
    monkeypatch.setattr(group, "_stderr_lines", list)
    nobody: Any = SimpleNamespace(lost=set())
    error = group._lost(nobody, 2)
    assert (error.exit_code, error.message) == (
        4,
        "mpirun ended while it started 2 ranks, without a word",
    )


def test_a_rank_that_ends_before_mpi_has_started_is_lost(listener: socket.socket) -> None:
    reception = _Reception(listener, KEY)
    connect(listener, KEY + HELLO.pack(1, 42)).close()
    assert reception.changed.wait(20)
    assert reception.lost == {1}
