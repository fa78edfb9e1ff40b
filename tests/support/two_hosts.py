"""Hosts that are network namespaces of this one, joined by two cables: `data0` for MPI, `mgmt0` for
its launcher. Two have their cables between them, more a switch.

Making them needs root and iproute2. What is made here is removed again, also when a test fails;
processes are Run's business.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.runs import mpirun

CABLES = ("data0", "mgmt0")
CARRIER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoHosts:
    """The namespaces by their names, which are the hosts' names too, and the script that MPICH's
    launcher enters them with. switch: the namespace of the switch, if there is one.
    """

    names: tuple[str, ...]
    enter: Path
    switch: str = ""

    def command(self, ranks: Sequence[int], command: Sequence[str]) -> list[str]:
        """That command with so many ranks on each host; the launcher runs on the first."""
        hosts = ",".join(f"{_address(k, 1)}:{count}" for k, count in enumerate(ranks))
        first, launcher = _address(0, 1), ["-launcher", "ssh", "-launcher-exec", str(self.enter)]
        variables = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "data0"}
        words = [word for pair in variables.items() for word in ("-genv", *pair)]
        words += ["-localhost", first, "-hosts", hosts, "-n", str(sum(ranks))]
        return [str(self.enter), first, mpirun() or "mpirun", *launcher, *words, *command]

    def cut(self, host: int, cables: Sequence[str]) -> None:
        """Take links of a host down."""
        for link in cables:
            _ip("-n", self.names[host], "link", "set", link, "down")

    def slow(self, host: int, rate: str, *, is_sending: bool, cable: str = "data0") -> None:
        """Slow what a host sends, or what the switch sends to it, to a rate such as 1gbit."""
        name, link = (self.names[host], cable) if is_sending else (self.switch, f"{cable}-{host}")
        _tc(name, f"qdisc add dev {link} root tbf rate {rate} burst 32k latency 50ms")

    def slow_path(self, host: int, to: int, rate: str, others: str) -> None:
        """Slow what a host sends to another, and less what it sends to all others."""
        for command in slow_path("data0", _address(to, 0), rate, others):
            _tc(self.names[host], command)


def slow_path(link: str, address: str, rate: str, others: str) -> Iterator[str]:
    """Commands of tc that slow what a link sends to an address, and less what it sends to all
    others.
    """
    yield f"qdisc add dev {link} root handle 1: htb default 1"
    for number, limit in ((1, others), (3, rate)):
        yield f"class add dev {link} parent 1: classid 1:{number} htb rate {limit}"
    peer = f"u32 match ip dst {address}/32"
    yield f"filter add dev {link} protocol ip parent 1: prio 1 {peer} flowid 1:3"


def _tc(name: str, command: str) -> None:
    """A command of tc in a namespace; the test is skipped where tc or the kernel lacks it."""
    words = ["tc", "-n", name, *command.split()]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs tc and qdiscs of the kernel: {done.stderr.strip()}")


def _address(host: int, cable: int) -> str:
    return f"10.213.{cable}.{host + 1}"


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@contextmanager
def two_hosts(folder: Path, count: int = 2) -> Iterator[TwoHosts]:
    """Make them, or skip the test where that is not allowed or MPI is not MPICH. count: more than
    two are joined by a switch.
    """
    mpi = pytest.importorskip("mpi4py.MPI")
    if mpirun() is None or "Open MPI" in mpi.Get_library_version():
        pytest.skip("needs MPICH and its launcher")
    if any(shutil.which(tool) is None for tool in ("ip", "unshare", *(["tc"] * (count > 2)))):
        pytest.skip("needs iproute2 and unshare")
    names = tuple(f"cb{os.getpid()}{chr(ord('a') + host)}" for host in range(count))
    switch = f"cb{os.getpid()}-switch" if count > 2 else ""
    made = []
    try:
        for name in (*names, *([switch] if switch else [])):
            _ip("netns", "add", name)
            made.append(name)
        for cable, link in enumerate(CABLES):
            if switch:
                _ip("-n", switch, "link", "add", link, "type", "bridge")
                _ip("-n", switch, "link", "set", link, "up")
                for host, name in enumerate(names):
                    port = f"{link}-{host}"
                    _join(link, name, port, switch)
                    _ip("-n", switch, "link", "set", port, "master", link)
                    _ip("-n", switch, "link", "set", port, "up")
            else:
                _join(link, names[0], link, names[1])
            for host, name in enumerate(names):
                _ip("-n", name, "addr", "add", f"{_address(host, cable)}/24", "dev", link)
                # an address of IPv6 is not usable for two seconds, and MPI would take it
                _ip("-n", name, "link", "set", link, "addrgenmode", "none")
                _ip("-n", name, "link", "set", link, "up")
    except subprocess.CalledProcessError as error:
        _remove(made)
        pytest.skip(f"needs leave to make network namespaces: {error.stderr.strip()}")
    try:
        for name in names:
            _ip("-n", name, "link", "set", "lo", "up")
        _wait_for_carriers(names)
        yield TwoHosts(names=names, enter=_script(folder, names), switch=switch)
    finally:
        _remove(made)


def _join(link: str, of: str, peer: str, at: str) -> None:
    """A cable between two namespaces."""
    there = ("type", "veth", "peer", "name", peer, "netns", at)
    _ip("link", "add", link, "netns", of, *there)


def _wait_for_carriers(names: Sequence[str]) -> None:
    """A cable carries a moment after both its ends are up; before, MPI finds no interface."""
    deadline = time.monotonic() + CARRIER_S
    for name in names:
        while _ip("-n", name, "-br", "link", "show", "up").count(" UP ") < len(CABLES):
            assert time.monotonic() < deadline, "the cables of the namespaces do not come up"
            time.sleep(0.05)


def _remove(names: Sequence[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _script(folder: Path, names: Sequence[str]) -> Path:
    """What plays ssh: [-x] ADDRESS COMMAND... runs the command in the namespace of that address,
    under a host name of its own.
    """
    script = folder / "bin" / "enter"
    script.parent.mkdir()
    cases = "\n".join(f"{_address(host, 1)}) name={name} ;;" for host, name in enumerate(names))
    script.write_text(
        f'#!/bin/sh\n[ "$1" = -x ] && ssh=1 && shift\ncase $1 in\n{cases}\nesac\nshift\n'
        '[ $ssh ] && set -- sh -c "exec $*"\n'
        'exec ip netns exec $name unshare -u sh -c \'hostname $0; exec "$@"\' $name "$@"\n'
    )
    script.chmod(0o755)
    return script
