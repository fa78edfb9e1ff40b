"""The wire ledger of real messages: over TCP the loopback interface counts what ranks of this host
send, and what somebody else sends meanwhile is found there.
"""

import socket
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from collbench.backends import repeat
from collbench.bench.points import plan_points
from collbench.bench.runner import Measurement
from collbench.bench.tables.wire import ledger_lines
from collbench.core.case import Case
from collbench.core.knobs import UNASKED
from collbench.core.options import Settings
from collbench.core.record import Record
from collbench.launch.local import LocalGroup
from collbench.machine.discovery.counters import CounterReading
from tests.support.runs import needs_mpi

SIZE, LAUNCHES = 4 << 20, 8
CASE = Case(op="allreduce", backend="cpu", algo="ring", ranks=2, size_bytes=SIZE, transport="net")
# What makes ranks of one host talk over TCP, in MPICH and in Open MPI.
OVER_TCP = {
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
}


def measured(cases: Sequence[Case]) -> tuple[list[Record], str]:
    """The rows of cases, and what the ledger says of them."""
    group = LocalGroup()
    settings = Settings(wire=True, iterations=LAUNCHES, repeats=1)
    with closing(Measurement(plan_points(cases, group), group, settings)) as measurement:
        measurement.open()
        rows = list(measurement.records())
    assert [row.status for row in rows] == ["ok"] * len(cases)
    return rows, " ".join(ledger_lines(measurement.ledgers, 10_000))


def send(size: int) -> None:
    """Send so many bytes over loopback."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        thread = threading.Thread(target=one.sendall, args=(bytes(size),))
        thread.start()
        while size:
            size -= len(other.recv(size))
        thread.join()


@pytest.mark.exhaustive
@needs_mpi
def test_messages_over_tcp_are_seen_and_foreign_ones_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OVER_TCP.items():
        monkeypatch.setenv(name, value)
    planted, calls, counters_of = 64 << 20, [0], repeat.counters_of

    def with_others(*args: object) -> list[CounterReading]:
        readings = counters_of(*args)  # type: ignore[arg-type]
        calls[0] += 1
        if calls[0] == 1:  # before the first row
            send(planted)
        return readings

    monkeypatch.setattr("collbench.backends.blocking.counters_of", with_others)
    cases = [replace(CASE, algo=algo) for algo in ("ring", "tree", "chain", "twoshot")]
    library = Case(op="allreduce", backend="mpi", ranks=2, size_bytes=SIZE, **UNASKED)
    (disturbed, *others, of_library), text = measured([*cases, library])
    for row in (disturbed, *others):
        assert row.wire_expected is not None
        assert 2 * SIZE < row.wire_expected < 2.01 * SIZE
    foreign = [row.wire_foreign or 0 for row in (disturbed, *others)]
    launches = LAUNCHES + repeat.proved_launches(LAUNCHES)
    assert 0.98 < foreign[0] / (planted / launches) < 1.25  # its own headers come on top
    # other tests may send something meanwhile, but not all the time
    assert min(map(abs, foreign[1:])) < 0.01 * 2 * SIZE
    assert "MB a launch out by lo is not of this row" in text
    assert (of_library.wire_expected, of_library.wire_foreign) == (None, None)
    assert "moved 1.0" in text


@pytest.mark.exhaustive
@needs_mpi
def test_messages_in_shared_memory_pass_no_link() -> None:
    (row,), _ = measured([CASE])
    assert row.wire_expected == 0
