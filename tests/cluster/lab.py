"""A real Slurm cluster whose hosts are namespaces of this machine; needs root, Slurm and munge.

All of it lives in namespaces of processes, mounts and networks of its own: the kernel ends every
process and removes every link, mount and file of it when its first process ends, which ends with
whoever started it, also when that one is killed. A host has a network, a name and a /dev/shm of its
own; a veth joins it to the bridge of all.

    python -m tests.cluster.lab 4 srun -N 4 hostname
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

TOOLS = (
    "slurmctld",
    "slurmd",
    "munged",
    "ip",
    "tc",
    "iptables-legacy",
    "nsenter",
    "unshare",
    "setpriv",
)
READY_S, END_S, LEFT_S = 60.0, 10.0, 30.0
RUN, NETWORK = Path("/run"), "10.77.0"
HEAD = "head"
CONF = """\
ClusterName=lab
SlurmctldHost={head}({network}.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
MpiDefault=pmi2
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
ReturnToService=2
KillWait=5
SlurmdTimeout=10
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool-%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd-%n.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/slurmd-%n.log
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def missing() -> str:
    """What this machine lacks for a cluster, or an empty text."""
    if os.geteuid():
        return "needs root"
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=_path()) is None]
    if lacking:
        return f"needs {', '.join(lacking)}: apt-get install slurm-wlm munge iproute2 iptables"
    tried = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount", "--net", "--uts", "--ipc", "true"],
        check=False,
        capture_output=True,
    )
    return "" if tried.returncode == 0 else "needs leave to make namespaces"


class Cluster:
    """A cluster that runs. hosts: their names; init: the number of its first process."""

    def __init__(self, init: int, hosts: Sequence[str]) -> None:
        self.init, self.hosts = init, hosts

    def command(self, words: Sequence[str], host: int | None = None) -> list[str]:
        """What runs a command on the head, or on a host."""
        enter = ["nsenter", "-t", str(self.init), "--all", f"--wdns={Path.cwd()}"]
        if host is None:
            return [*enter, *words]
        return [*enter, "sh", "-c", f'exec {_enter(host)} "$@"', "sh", *words]

    def start(
        self, words: Sequence[str], env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a command on the head."""
        return subprocess.Popen(
            self.command(words),
            env=_environment(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        *words: str,
        host: int | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on the head, or on a host. Raises TimeoutExpired."""
        return subprocess.run(
            self.command(words, host),
            env=_environment(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def batch(
        self, *words: str, env: Mapping[str, str], timeout_s: float = 300.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run a batch job, whose exit code the result has: sbatch --wait looks seldom."""
        done = self.run("sbatch", "--parsable", *words, env=env)
        deadline, state = time.monotonic() + timeout_s, ""
        while done.returncode == 0 and time.monotonic() < deadline:
            state = self.run("scontrol", "show", "job", done.stdout.strip()).stdout
            if re.search(r"JobState=(COMPLETED|FAILED|TIMEOUT|NODE_FAIL)", state):
                break
            time.sleep(0.5)
        code = re.search(r" ExitCode=(\d+):", state)
        done.returncode = int(code[1]) if code else 1
        return done

    def left(self) -> str:
        """Processes of ours, and files in shared memory, that hosts still have after some time."""
        look = "ps ax -o args | grep '[c]ollbench\\|[c]b-'; ls /dev/shm"
        deadline, hosts = time.monotonic() + LEFT_S, range(len(self.hosts))
        while True:
            left = "".join(self.run("sh", "-c", look, host=host).stdout for host in hosts)
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(1)

    def shape(self, host: int, discipline: str = "", *, is_sending: bool = True) -> None:
        """Give what a host sends, or what is sent to it, a discipline of tc instead of the one that
        it has; without one it is as fast as this machine.
        """
        link, where = ("eth0", host) if is_sending else (f"v{host}", None)
        self.run("tc", "qdisc", "del", "dev", link, "root", host=where)
        if discipline:
            words = ["tc", "qdisc", "add", "dev", link, "root", *discipline.split()]
            done = self.run(*words, host=where)
            assert done.returncode == 0, done.stderr

    def slow_path(self, host: int, to: int, rate: str, others: str) -> None:
        """Slow what a host sends to another, and less what it sends to all others."""
        self.shape(host, "handle 1: htb default 1")
        peer = f"u32 match ip dst {NETWORK}.{to + 1}/32"
        for command in (
            f"class add dev eth0 parent 1: classid 1:1 htb rate {others}",
            f"class add dev eth0 parent 1: classid 1:3 htb rate {rate}",
            f"filter add dev eth0 protocol ip parent 1: prio 1 {peer} flowid 1:3",
        ):
            done = self.run("tc", *command.split(), host=host)
            assert done.returncode == 0, done.stderr


@contextmanager
def cluster(hosts: int, *, has_one_name: bool = False) -> Iterator[Cluster]:
    """Make a cluster of so many hosts. has_one_name: all have the name of the first."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("w") as out:
            first = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL"),
                    *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--mount"),
                    *("--net", "--uts", "--ipc", "--propagation", "private"),
                    *(sys.executable, __file__, "--init", str(hosts), folder),
                    str(int(has_one_name)),
                ],
                env={**os.environ, "PATH": _path()},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            deadline = time.monotonic() + READY_S
            while not Path(folder, "ready").exists():
                if first.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the cluster does not start: {log.read_text()}")
                time.sleep(0.05)
            yield Cluster(_child(first.pid), [_name(host) for host in range(hosts)])
        finally:
            with suppress(ProcessLookupError):
                first.kill()
            first.wait(END_S)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _child(process: int) -> int:
    """The first child of a process."""
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PATH": _path(), "SLURM_CONF": str(RUN / "slurm.conf"), **more}


def _name(host: int) -> str:
    return f"h{host + 1}"


def _enter(host: int) -> str:
    """What enters a host, in words of a shell."""
    return f"nsenter -t $(cat {RUN}/{_name(host)}.pid) --net --uts --ipc --mount --pid --wdns=$PWD"


def _sh(script: str) -> None:
    subprocess.run(["sh", "-euc", script], check=True)


def _make(hosts: int, folder: str, has_one_name: bool) -> list["subprocess.Popen[bytes]"]:
    """All that a cluster has, by its first process."""
    known = Path("/etc/hosts").read_text()
    _sh(
        f"mount -t tmpfs none {RUN}; mount -t tmpfs none /etc/munge; mount -t tmpfs none /var/log"
        f"; mkdir -p {RUN}/netns {RUN}/munge {RUN}/slurm/state; hostname {HEAD}; ip link set lo up"
        "; ip link add bridge0 type bridge; ip link set bridge0 up"
        f"; ip addr add {NETWORK}.254/24 dev bridge0"
    )
    names = "\n".join(f"{NETWORK}.{host + 1} {_name(host)}" for host in range(hosts))
    Path(RUN, "hosts").write_text(f"{known}\n{NETWORK}.254 {HEAD}\n{names}\n")
    _sh(f"mount --bind {RUN}/hosts /etc/hosts")
    nodes = "\n".join(
        f"NodeName={_name(host)} NodeHostname={_name(host)} NodeAddr={NETWORK}.{host + 1}"
        f" Port={17001 + host} CPUs=2 State=UNKNOWN"
        for host in range(hosts)
    )
    conf = CONF.format(head=HEAD, network=NETWORK, nodes=nodes)
    Path(RUN, "slurm.conf").write_text(conf)
    os.environ["SLURM_CONF"] = str(RUN / "slurm.conf")
    key = Path("/etc/munge/munge.key")
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    daemons = [subprocess.Popen(["munged", "--foreground", "--force"])]
    daemons.append(subprocess.Popen(["slurmctld", "-D"]))
    for host in range(hosts):
        name = _name(host)
        _sh(
            f"ip netns add {name}; ip link add v{host} type veth peer name eth0 netns {name}"
            f"; ip link set v{host} master bridge0 up; ip -n {name} link set lo up"
            f"; ip -n {name} addr add {NETWORK}.{host + 1}/24 dev eth0"
            f"; ip -n {name} link set eth0 up"
        )
        called = _name(0) if has_one_name else name
        memory = "mount -t tmpfs -o size=2g none /dev/shm"
        command = (
            f"hostname {called}; {memory}; slurmd -D -N {name} & wait; while sleep 1; do :; done"
        )
        enter = ["nsenter", f"--net={RUN}/netns/{name}", "unshare", "--uts", "--ipc", "--mount"]
        enter += ["--pid", "--fork", "--kill-child", "--mount-proc"]
        daemons.append(subprocess.Popen([*enter, "sh", "-c", command]))
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        state = subprocess.run(["sinfo", "-h", "-o", "%T %D"], check=False, capture_output=True)
        if state.stdout.decode().split() == ["idle", str(hosts)]:
            for host, daemon in enumerate(daemons[-hosts:]):
                Path(RUN, f"{_name(host)}.pid").write_text(str(_child(daemon.pid)))
            Path(folder, "ready").touch()
            return daemons
        time.sleep(0.2)
    logs = [log.read_text()[-2000:] for log in Path(RUN, "slurm").glob("*.log")]
    raise SystemExit(f"{state.stdout.decode()}{state.stderr.decode()}\n{logs}")


def _init(hosts: str, folder: str, has_one_name: str) -> None:
    """The first process of a cluster: make it, then wait for orphans as such a process must."""
    daemons = _make(int(hosts), folder, bool(int(has_one_name)))
    assert daemons
    while True:
        with suppress(ChildProcessError):
            os.wait()


def main() -> int:
    """Make a cluster of so many hosts, run a command on its head, and remove the cluster."""
    if sys.argv[1:2] == ["--init"]:
        _init(*sys.argv[2:])
    if lacks := missing():
        sys.exit(lacks)
    with cluster(int(sys.argv[1])) as one:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        words = sys.argv[2:] or [os.environ.get("SHELL", "sh")]
        return subprocess.run(one.command(words), env=_environment({}), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
