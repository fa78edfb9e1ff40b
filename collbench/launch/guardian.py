"""The guardian: the process that a launcher has started becomes the parent of the rank, and gives
the rank's waits a deadline from before MPI starts until it has ended.

It needs neither the rank's Python lock nor MPI, so no call of a library keeps it from looking. The
rank writes what it waits for to memory that both share. Past the deadline the guardian says who
keeps the rank waiting, and ends all ranks; so it does when the rank is killed. It passes signals
on, and ends as the rank does. A cleaner outlives both: see cleaner.py.
"""

import fcntl
import math
import mmap
import os
import pickle
import select
import signal
import stat
import struct
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from collbench.core.errors import HangError, RankLostError
from collbench.core.launcher import INTERRUPTIONS, Launcher, launcher
from collbench.core.text import printable
from collbench.launch.cleaner import CLEANER, PROXY, start_cleaner
from collbench.launch.processes import (
    LOST_S,
    PR_SET_NAME,
    RUNS,
    command_of,
    descendants,
    die_with_parent,
    fate,
    fate_of_all,
    fork,
    hint_of,
    is_stopped,
    libc,
    parent_of,
    send,
)

SILENT_S = 6.0  # a remote rank without a heartbeat for so long, several in a row, is lost
FORWARD_S = 0.3  # for the launcher to pass on the last message: after an abort it may not
READ_S = 3.0  # for one that has not even read it
TURN_S = 1.0  # a rank waits so long for a lower one to report and to end all ranks
_TICK_S, _FAST_TICK_S = 1.0, 0.1  # between two looks, and while MPI starts
_SUSPENDED_S = 2.0  # a look that is so late was not the guardian's fault: nobody had run
_OBEY_S = 3.0  # for a launcher to do as it is told
_REGISTER_S = 0.5  # for a launcher to hear of ranks that have come last
_COME_S = 3.0  # for the other ranks of this host to come
_NAME = "cb-guardian"
_LAUNCHERS = ("mpiexec.hydra", "mpiexec", "mpirun")  # MPICH's, on its own host
# SIGCONT, because sigtimedwait of Python tells nonsense where another signal ends its last wait
_SIGNALS = (signal.SIGCHLD, signal.SIGCONT, *INTERRUPTIONS)
_INTERRUPTED = [128 + number for number in INTERRUPTIONS]
_FROM_TERMINAL = 0x80  # SI_KERNEL: every process of the terminal has had it


@dataclass(frozen=True, slots=True)
class GuardedWait:
    """What a rank waits for: since when and until when (monotonic seconds), and after how many
    seconds it ends where a rank is seen stopped or gone. is_last: the others may have ended.
    """

    what: str = ""
    since: float = 0.0
    until: float = math.inf
    lost_s: float = math.inf
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class GuardedWorld:
    """All ranks, once they know each other: the name of the host and the process id of each."""

    hosts: Sequence[str]
    pids: Sequence[int]


class Page:
    """Memory that a rank and its guardian share: the wait, the world, and when each rank of another
    host was last heard of.

    The rank writes, the guardian reads. An odd count says that a text is being written.
    """

    _COUNT, _BEATS, _ROOM = struct.Struct("<QQ"), 16, 512  # bytes of a rank's name and numbers

    def __init__(self, n: int) -> None:
        self._memory = mmap.mmap(-1, self._BEATS + n * (8 + self._ROOM) + (1 << 16))
        self._text = self._BEATS + n * 8
        self.write(GuardedWait(), None)

    def write(self, wait: GuardedWait, world: GuardedWorld | None) -> None:
        count, _ = self._COUNT.unpack_from(self._memory)
        data = pickle.dumps((wait, world))
        self._COUNT.pack_into(self._memory, 0, count + 1, 0)
        self._memory[self._text : self._text + len(data)] = data
        self._COUNT.pack_into(self._memory, 0, count + 2, len(data))

    def read(self) -> tuple[GuardedWait, GuardedWorld | None] | None:
        """What was written last; None while it is being written."""
        count, size = self._COUNT.unpack_from(self._memory)
        data = self._memory[self._text : self._text + size]
        if count % 2 or self._COUNT.unpack_from(self._memory) != (count, size):
            return None
        wait, world = pickle.loads(data)
        return wait, world

    def beat(self, rank: int) -> None:
        """A sign of life of a rank of another host has come."""
        struct.pack_into("<d", self._memory, self._BEATS + 8 * rank, time.monotonic())

    def end_beats(self, rank: int) -> None:
        """No heartbeat of that rank is waited for any more."""
        struct.pack_into("<d", self._memory, self._BEATS + 8 * rank, 0.0)

    def silence_s(self, rank: int) -> float:
        """Seconds since the last heartbeat of a rank, 0 if nobody listens for one."""
        (last,) = struct.unpack_from("<d", self._memory, self._BEATS + 8 * rank)
        return time.monotonic() - last if last else 0.0


def fate_in(world: GuardedWorld, page: Page, rank: int, me: int) -> str:
    """What became of a rank's process as rank `me` sees it; a remote one seems to run while its
    heartbeat comes.
    """
    if world.hosts[rank] == world.hosts[me]:
        return fate(world.pids[rank], None)
    silence_s = page.silence_s(rank)
    return (
        f"on host {world.hosts[rank]} sent host {world.hosts[me]} no heartbeat for"
        f" {silence_s:.0f} s"
        if silence_s > SILENT_S
        else RUNS
    )


def blame_in(world: GuardedWorld | None, fates: Mapping[int, str], me: int) -> str:
    """Whom rank `me` blames, by the fates of other ranks: each that is lost; but where it hears no
    host, its own is more likely to be cut off than all others.
    """
    lost, cut_off = {rank: what for rank, what in fates.items() if what != RUNS}, ""
    if world is not None:
        far = [rank for rank in fates if world.hosts[rank] != world.hosts[me]]
        if len({world.hosts[rank] for rank in far}) > 1 and lost.keys() >= {*far}:
            cut_off = f"; it hears no other host: host {world.hosts[me]} may be cut off"
            lost = {rank: what for rank, what in lost.items() if rank not in far}
    return "".join(f"; rank {rank} {what}" for rank, what in sorted(lost.items())) + cut_off


def start(page: Page, started: Launcher, driver: int) -> None:
    """Go on as the rank in a child of this process, which becomes its guardian. driver: the process
    with which both end; 0 if that is a rank.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    guardian_pid = os.getpid()
    cleaner, alive = start_cleaner(started)
    # until here and from there on a signal finds its handler, in between nobody
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = fork()
    if child == 0:
        os.close(cleaner)
        die_with_parent(guardian_pid)
        for number in INTERRUPTIONS if started.rank else ():
            signal.signal(number, signal.SIG_IGN)  # rank 0 ends all of them
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os.close(alive)  # the rank's, as long as it lives
    code = HangError.exit_code
    try:
        libc.prctl(PR_SET_NAME, _NAME.encode(), 0, 0, 0)
        code = _Guardian(page, child, started, cleaner, driver).watch()
    finally:
        os._exit(code)


class _Guardian:
    """The guardian's side."""

    def __init__(
        self, page: Page, rank_pid: int, started: Launcher, cleaner: int, driver: int
    ) -> None:
        self.page, self.rank_pid, self.started, self.driver = page, rank_pid, started, driver
        self.cleaner, self.is_clean = cleaner, False  # no memory of MPI's has a name any more
        self.interruption = 0  # the last signal that the launcher has sent
        self.launcher_pid = os.getppid()
        above = parent_of(self.launcher_pid)
        is_proxy = command_of(self.launcher_pid) == PROXY and command_of(above) in _LAUNCHERS
        self.above = above if is_proxy else None
        self.siblings: dict[int, list[int]] = {}
        self.scanned, self.launcher_ran = 0.0, time.monotonic()
        self.suspended_s = 0.0  # time in which nothing ran

    def watch(self) -> int:
        """Look until the rank has ended; returns the exit code."""
        tick_s = _FAST_TICK_S
        while True:
            looked = time.monotonic()
            signalled = signal.sigtimedwait(_SIGNALS, tick_s)
            late_s = time.monotonic() - looked - tick_s
            self.suspended_s += late_s if late_s > _SUSPENDED_S else 0
            if (
                signalled is not None
                and signalled.si_signo in INTERRUPTIONS
                and signalled.si_code != _FROM_TERMINAL
            ):
                self.interruption = signalled.si_signo
                os.kill(self.rank_pid, signalled.si_signo)
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.rank_pid:
                    return self._ended(os.waitstatus_to_exitcode(ended[1]))
            if os.getppid() != self.launcher_pid or self._is_orphan():
                os.kill(self.rank_pid, signal.SIGKILL)
                return HangError.exit_code
            state = self.page.read()
            if state is None:
                continue
            is_starting = state[1] is None
            tick_s = _FAST_TICK_S if is_starting else _TICK_S
            if not is_starting and self.started.vendor == "MPICH":  # its memory has no name now
                self._dismiss_cleaner()
            story = self._story_of_launcher() or self._story(*state)
            if story and self._is_my_turn(*state):
                hint = HangError.general_hint
                if is_starting and story.endswith(state[0].what):  # it knows of nobody
                    hint = "look at the other hosts; if all ranks run there, start again"
                code, text = HangError.exit_code, f"Error: {story}\nHint: {hint}\n"
                if is_starting and self.interruption:  # rank 0 obeyed it, and had no guardian yet
                    code, text = 128 + self.interruption, ""
                self._end(code, text)
                return code

    def _is_orphan(self) -> bool:
        """Whether the driver has gone, or the process of MPICH's launcher that has started this one
        has lost the launcher, and does not end: it is stopped.
        """
        is_lost = self.above is not None and parent_of(self.launcher_pid) != self.above
        return is_lost or (self.driver > 0 and fate_of_all([self.driver]) == "is gone")

    def _ended(self, code: int) -> int:
        """What is to be said and done where the rank ended so; returns the exit code."""
        rank = self.started.rank
        if code in _INTERRUPTED or -code in INTERRUPTIONS:
            # a handler of ours that ended the rank has spoken
            is_silent = rank == 0 and code < 0
            code = code if code > 0 else 128 - code
            self._end(code, "Interrupted.\n" if is_silent else "")
            return code
        if code >= 0:
            self._dismiss_cleaner()
            return code
        what = fate(0, code)
        text = f"Error: rank {rank} {what}\nHint: {hint_of(what) or RankLostError.general_hint}\n"
        if -code == signal.SIGALRM:  # sent by one that has spoken, and whose code is to be first
            text = ""
            time.sleep(2 * _REGISTER_S)
        self._end(HangError.exit_code, text)
        return HangError.exit_code

    def _dismiss_cleaner(self) -> None:
        """Nothing of MPI's will be left behind."""
        if not self.is_clean:
            self.is_clean = True
            with suppress(BrokenPipeError):
                os.write(self.cleaner, b"\n")

    def _story_of_launcher(self) -> str:
        """That MPICH's launcher has been stopped on this host for too long, or an empty text."""
        what, now = fate(self.launcher_pid, None), time.monotonic() - self.suspended_s
        if not is_stopped(what) or command_of(self.launcher_pid) != PROXY:
            self.launcher_ran = now
        is_long = now > self.launcher_ran + LOST_S
        return f"{PROXY} above rank {self.started.rank} {what}" if is_long else ""

    def _story(self, wait: GuardedWait, world: GuardedWorld | None) -> str:
        """Why the rank has waited too long, or an empty text."""
        if world is None and time.monotonic() > self.scanned + _TICK_S:
            self._fates(None)  # who has come, before anybody goes
            self.scanned = time.monotonic()
        now = time.monotonic() - self.suspended_s
        waited_s, is_late = now - wait.since, now >= wait.until
        if waited_s < wait.lost_s and not is_late:
            return ""
        fates = self._fates(world)
        own = fates.pop(self.started.rank, RUNS)
        lost = {rank: what for rank, what in fates.items() if what != RUNS and not wait.is_last}
        me = f"rank {self.started.rank}"
        if own != RUNS and not (fates and all(map(is_stopped, fates.values()))):
            return f"{me} {own}"
        more_s = 0.0 if wait.is_last else self._patience_s(world, lost)
        is_lost = lost and waited_s >= wait.lost_s + more_s
        # the whole job is stopped, or all may yet come
        if own != RUNS or not (is_lost or now >= wait.until + more_s):
            return ""
        blame = blame_in(world, lost, self.started.rank)
        return f"{me} waited {waited_s:.1f} s for {wait.what}{blame}"

    def _patience_s(self, world: GuardedWorld | None, lost: Mapping[int, str]) -> float:
        """How much longer this rank waits because a host may be cut off: rank 0, which hears all
        others, until it knows which; the others until it has spoken, since to the one that is cut
        off all seem silent.
        """
        if world is None or len({*world.hosts}) == 1:
            return 0.0
        own_host = world.hosts[self.started.rank]
        if any(world.hosts[rank] == own_host for rank in lost):
            return 0.0
        if own_host != world.hosts[0]:
            return 2 * SILENT_S
        return 0.0 if lost else SILENT_S

    def _fates(self, world: GuardedWorld | None) -> dict[int, str]:
        """What became of every rank that can be seen."""
        me = self.started.rank
        if world is not None:
            return {rank: fate_in(world, self.page, rank, me) for rank in range(len(world.pids))}
        if self.started.local_size == self.started.size:  # one that never came is gone, too
            self.siblings = {rank: self.siblings.get(rank, []) for rank in range(self.started.size)}
        self.siblings |= ranks_beside(self.rank_pid, self.started.vendor)
        return {rank: fate_of_all(pids) for rank, pids in self.siblings.items()}

    def _is_my_turn(self, wait: GuardedWait, world: GuardedWorld | None) -> bool:
        """Whether no lower rank of this host speaks first, and the wait is still the same then."""
        me = self.started.rank
        fates = self._fates(world)
        if fates.get(me, RUNS) != RUNS or any(
            rank < me and what == RUNS for rank, what in fates.items()
        ):
            time.sleep(TURN_S)
        state = self.page.read()
        return state is not None and state[0] == wait

    def _end(self, exit_code: int, text: str) -> None:
        """Print why, and end all ranks so that the launcher's exit code is that one.

        MPICH's launcher would report our code or that of a rank that it killed, by chance; what
        MPI_Abort asks of it goes ahead of any process's end, and so does what a rank asks for that
        misses another one: the ranks of this host stand still from now on. Open MPI's keeps the
        first code, and may hang where it has to end a rank that stands still, or where a rank makes
        itself known while the job ends: ranks that still start end before their guardians do.
        """
        is_mpich = self.started.vendor == "MPICH"
        frozen = set[int]()
        for pid in self._others() if is_mpich else ():
            send(pid, signal.SIGSTOP)
            frozen.add(pid)
        send(self.launcher_pid, signal.SIGCONT)  # to pass the text on
        if text:
            say(text)
        if is_mpich and os.environ.get("PMI_FD", "").isdecimal():
            with suppress(OSError):
                os.write(int(os.environ["PMI_FD"]), f"cmd=abort exitcode={exit_code}\n".encode())
            time.sleep(_OBEY_S)
            for pid in frozen:  # the launcher has not ended them
                send(pid, signal.SIGALRM)
                send(pid, signal.SIGCONT)
        elif self.started.vendor == "Open MPI" and self._is_starting():
            self._end_all_that_start()
        send(self.rank_pid, signal.SIGKILL)

    def _end_all_that_start(self) -> None:
        """End the other ranks of this host, those that have not come yet as soon as they come."""
        ended = set[int]()
        deadline = time.monotonic() + _COME_S
        while len(ended) < self.started.local_size - 1 and time.monotonic() < deadline:
            for pid in {*self._others()} - ended:
                send(pid, signal.SIGALRM)
                ended.add(pid)
            time.sleep(_FAST_TICK_S)
        time.sleep(_REGISTER_S)

    def _is_starting(self) -> bool:
        state = self.page.read()
        return state is not None and state[1] is None

    def _others(self) -> Iterator[int]:
        """The other ranks of this host, first those that are known; but nothing that a launcher has
        started itself: it may take it for ended.
        """
        state = self.page.read()
        if state is not None and (world := state[1]) is not None:
            own_host = world.hosts[self.started.rank]
            ranks = zip(world.hosts, world.pids, strict=True)
            yield from self._guarded(pid for host, pid in ranks if host == own_host)
            return
        known = [pid for pids in self.siblings.values() for pid in pids]
        yield from self._guarded(known)
        found = ranks_beside(os.getpid(), self.started.vendor)
        yield from self._guarded(pid for pids in found.values() for pid in pids)

    def _guarded(self, pids: Iterable[int]) -> Iterator[int]:
        return (pid for pid in pids if pid != self.rank_pid and command_of(parent_of(pid)) == _NAME)


def say(text: str) -> None:
    """Print to stderr if its reader takes it, and wait until a launcher has passed it on."""
    writable = select.poll()
    writable.register(2, select.POLLOUT)
    if text and writable.poll(READ_S * 1000):
        with suppress(OSError):  # who listened has gone
            os.write(2, printable(text).encode())
    time.sleep(FORWARD_S)
    deadline = time.monotonic() + READ_S
    while (is_unread(1) or is_unread(2)) and time.monotonic() < deadline:
        time.sleep(0.01)


def is_unread(file: int) -> bool:
    """Whether this is a pipe whose reader has not taken everything yet."""
    try:
        return stat.S_ISFIFO(os.fstat(file).st_mode) and fcntl.ioctl(
            file, termios.FIONREAD, bytes(4)
        ) != bytes(4)
    except OSError:
        return False


def ranks_beside(pid: int, vendor: str) -> dict[int, list[int]]:
    """The processes of each rank that the launcher of a process has on this host, guardians and
    their like left out.
    """
    ranks: dict[int, list[int]] = {}
    for process in descendants(launcher_above(pid, vendor)):
        started = _launcher_of(process, vendor)
        if started is not None and command_of(process) not in (_NAME, CLEANER):
            ranks.setdefault(started.rank, []).append(process)
    return ranks


def launcher_above(pid: int, vendor: str) -> int:
    """The process of a launcher that started a process on this host."""
    top = pid
    while (above := parent_of(top)) > 1 and _launcher_of(above, vendor) is not None:
        top = above
    return parent_of(top)


def _launcher_of(pid: int, vendor: str) -> Launcher | None:
    """The launcher of that vendor above a process, by its environment."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    started = launcher(dict(pair.split("=", 1) for pair in pairs if "=" in pair))
    return started if started is not None and started.vendor == vendor else None
