"""The proxy of a rank on a GPU: it sends what the kernel has put into slots of the rank's own, and
receives into others, over MPI.

Kernels know nothing of it (device/layout.py, `reach`): the sending kernel fills a slot and sets a
word, which the proxy polls, and polls a word that the proxy sets when a slot has left; the
receiving kernel polls a word that the proxy sets when a message has come, and says which slots it
has read. Lines of ll carry their flags along, and no word says that they are there: the proxy sends
a slot once every line of it has the slice's flag.

Order. GPU to CPU: kernels fence with the scope of the system between data and word, and a
line's data and flag are one aligned store of 8 bytes; a CPU of x86-64 loads in order.
CPU to GPU: MPI has written the data before Test says so, and x86-64 stores in order; what MPI
writes of lines in which order does not matter, as long as it copies words of 8 bytes whole or
ascending.

A message without a byte, as unequal blocks have them, is sent by nobody: no flag says that it is
filled, so it would run ahead of the kernel, past the slots that its receiver has.

It has no thread of its own (see proxy.py; large messages may have some to copy them, see
receivers.py): the rank's host has nothing else to do while its GPU runs, and gives turns instead
of sleeping. So all that the host queues while kernels wait must not block it: launches go in
bursts, and the stream is empty before the next.
"""

import ctypes
import mmap
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from collbench.backends.net.proxy import (
    FIRST_TAG,
    Connector,
    DataComm,
    SendConnector,
    SlotProxy,
    WireEnd,
)
from collbench.backends.net.receivers import TAKEN_FROM, Receivers, is_worth_threads
from collbench.core.errors import HangError
from collbench.core.launcher import library_name
from collbench.core.mpi_types import Buffer, MpiModule
from collbench.device.card import Card
from collbench.device.layout import (
    ABORT_AT,
    BARRIER_AT,
    CONTROL_BYTES,
    FLAG_LINE_BYTES,
    net_layout,
    other_end,
    peer_of,
)
from collbench.device.messages import WireMessage, messages
from collbench.device.program import lower
from collbench.planning.limits import slot_wire_bytes
from collbench.planning.plan import Plan

# launches that are queued before the stream is awaited: a full queue would block the host, whose
# turns they need
BURST = 64
# turns between two looks at the stream; such looks between two at the other ranks
TURNS, LOOK = 8, 32
_WORD = 8
# of the two words of a barrier: the one that the host sets; the kernel sets the other itself
_OUTSIDE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuEnd(WireEnd):
    """One end of a connection on a channel. kernel_word: the word that the kernel sets; memory: of
    each slot, of slot_bytes; receivers: threads that receive large messages.
    """

    kernel_word: int
    memory: Sequence[Buffer]
    slot_bytes: int
    receivers: Receivers | None = None


class _NothingToMove:
    """The request of a message without a byte, which nobody sends: both ends know its size."""

    def Test(self) -> bool:  # noqa: N802  a name of mpi4py
        return True


_NOTHING = _NothingToMove()


class _GpuConnector(Connector):
    """One end of a connection on a channel. first: the messages before those of the launches that
    were expected last, each of which has the messages `launched`.
    """

    def __init__(self, end: _GpuEnd) -> None:
        super().__init__(end)
        self.kernel_word, self.memory, self.slot_bytes = end.kernel_word, end.memory, end.slot_bytes
        self.first = 0
        self.launched: Sequence[WireMessage] = ()

    def expect(self, launched: Sequence[WireMessage], count: int) -> None:
        """What so many launches, which follow each other, will move each."""
        self.first, self.launched = self.posted, launched
        self.limit = self.posted + count * len(launched)

    def next_message(self) -> WireMessage:
        """The message that is posted next."""
        return self.launched[(self.posted - self.first) % len(self.launched)]

    def skip(self) -> None:
        """Count the next message, which has no byte."""
        self.posted += 1
        self.pending.append(_NOTHING)


class _GpuSendConnector(_GpuConnector, SendConnector):
    """The sending end."""

    def turn(self, words: "memoryview[int]") -> None:
        """Send what was filled, and say what has left."""
        filled = words[self.kernel_word]
        while self.posted < filled:
            self.send()
        if self.pending:
            self.settle(words)

    def send(self) -> None:
        """Send the next message."""
        slot, size = self.memory[self.posted % self.slots], self.next_message().size
        if size:
            self.post(slot if size == self.slot_bytes else slot[:size])
        else:
            self.skip()


class _LineSendConnector(_GpuSendConnector):
    """One whose slots are lines with flags."""

    def __init__(self, end: _GpuEnd) -> None:
        super().__init__(end)
        import numpy as np

        self.lines = [np.frombuffer(slot, np.uint32) for slot in end.memory]

    def turn(self, words: "memoryview[int]") -> None:
        """Send what was filled, and say what has left."""
        while self.posted < self.limit and self._is_filled():
            self.send()
        if self.pending:
            self.settle(words)

    def _is_filled(self) -> bool:
        """Whether every line of the next message has its flag: the last is checked first."""
        lines, flag = self.lines[self.posted % self.slots], (self.posted + 1) & 0xFFFFFFFF
        return all(
            lines[(first + size) // 4 - 1] == flag
            and (lines[first // 4 + 1 : (first + size) // 4 : 2] == flag).all()
            for first, size in reversed(self.next_message().parts)
        )


class _GpuRecvConnector(_GpuConnector):
    """The receiving end, which posts a receive into every free slot. kernel_word: the word by which
    the kernel frees slots.
    """

    def turn(self, words: "memoryview[int]") -> None:
        """Receive into free slots, and say what has come."""
        if self.posted < self.limit:
            free = min(self.limit, words[self.kernel_word] + self.slots)
            while self.posted < free:
                if self.next_message().size:
                    slot = self.memory[self.posted % self.slots]
                    self.pending.append(self.comm.Irecv(slot, self.peer, self.tag))
                    self.posted += 1
                else:
                    self.skip()
        if self.pending:
            self.settle(words)


class _DirectRecvConnector(_GpuRecvConnector):
    """One that takes messages once they are here, one a turn, or lets threads receive them if it
    has any.
    """

    def __init__(self, end: _GpuEnd) -> None:
        super().__init__(end)
        self.receivers = end.receivers

    def turn(self, words: "memoryview[int]") -> None:
        """Take a message if there is one and a slot for it, and say what has come."""
        if self.posted < self.limit and self.posted < words[self.kernel_word] + self.slots:
            if not self.next_message().size:
                self.skip()
            elif (message := self.comm.Improbe(self.peer, self.tag)) is not None:
                slot = self.memory[self.posted % self.slots]
                self.pending.append(
                    message.Irecv(slot)
                    if self.receivers is None
                    else self.receivers.receive(message, slot)
                )
                self.posted += 1
        if self.pending:
            self.settle(words)


class GpuProxy(SlotProxy[_GpuSendConnector | _GpuRecvConnector]):
    """Moves the slots of one plan for one rank.

    words: of the rank's net memory; slots: its bytes of slots, as MPI takes them; near: ranks whose
    messages this process copies; receivers: threads for the large ones.
    """

    def __init__(
        self,
        data_comm: DataComm,
        plan: Plan,
        rank: int,
        words: "memoryview[int]",
        slots: Buffer,
        near: Collection[int] = (),
        receivers: Receivers | None = None,
    ) -> None:
        super().__init__(data_comm, rank, words)
        self.plan = plan
        where, program = net_layout(plan, rank), lower(plan, rank)
        slot_bytes = slot_wire_bytes(plan)
        # by end: the sender's rank, the channel and the number of its end there
        self._senders: list[tuple[int, int, int]] = []
        for channel, (k, (is_sending, number)) in product(
            range(plan.channels), enumerate(where.ends)
        ):
            end = (program.sending if is_sending else program.receiving)[number]
            peer = peer_of(plan, rank, end)
            src, dst = (rank, peer) if is_sending else (peer, rank)
            word = (where.words + channel * where.words_stride + 2 * k * FLAG_LINE_BYTES) // _WORD
            first = channel * where.slots_stride + k * where.fifo_bytes
            wire = _GpuEnd(
                comm=data_comm.comm,
                peer=peer,
                tag=FIRST_TAG + plan.number_of(channel, src, dst, end.port),
                word=word,
                kernel_word=word + FLAG_LINE_BYTES // _WORD,
                slots=plan.slots,
                memory=[
                    slots[first + slot * slot_bytes : first + (slot + 1) * slot_bytes]
                    for slot in range(plan.slots)
                ],
                slot_bytes=slot_bytes,
                receivers=receivers if is_worth_threads(plan) else None,
            )
            if is_sending:
                sender = _GpuSendConnector if plan.proto == "simple" else _LineSendConnector
                self.ends.append(sender(wire))
            else:
                is_taken = peer in near and slot_bytes >= TAKEN_FROM
                self.ends.append((_DirectRecvConnector if is_taken else _GpuRecvConnector)(wire))
                number = other_end(plan, rank, end, is_sending=False)
            self._senders.append((src, channel, number))
        self._launched = [messages(plan, *sender) for sender in self._senders]

    def expect(self, launches: int) -> None:
        """So many launches will follow, all messages of earlier ones having come and gone."""
        for end, launched in zip(self.ends, self._launched, strict=True):
            end.expect(launched, launches)

    def expect_each(self, counts: Sequence[int]) -> None:
        """Launches of those block counts will follow."""
        for end, sender in zip(self.ends, self._senders, strict=True):
            known = {count: messages(self.plan, *sender, count) for count in set(counts)}
            end.expect([message for count in counts for message in known[count]], 1)

    def is_idle(self) -> bool:
        """Whether all messages of the launches that were expected have come and gone."""
        return not any(end.pending or end.posted < end.limit for end in self.ends)


class Outside:
    """What a rank on a GPU has to do with ranks that do not share its memory: words and slots, the
    proxy of the plan that runs, barriers, and aborts.

    It has control words of its own, like an arena's, so that its kernels need no other rank's.
    """

    def __init__(
        self,
        data_comm: DataComm,
        address: int,
        words_bytes: int,
        slots_bytes: int,
        gpu_slots: int = 0,
        gpu_slots_bytes: int = 0,
        *,
        near: Collection[int] = (),
        receivers: Receivers | None = None,
    ) -> None:
        """address: of host memory for so many bytes of words, then slots; gpu_slots: of memory of
        the GPU for the slots of plans that may have theirs there.

        near: the ranks of this host, whose messages to host memory this process copies; receivers:
        threads for the large ones, until close().
        """
        self.data_comm, self.address, self.gpu_slots = data_comm, address, gpu_slots
        self.slots = address + slots_offset(words_bytes)
        self.words: memoryview[int] = _host_bytes(address, words_bytes).cast("Q")
        self._slots = _host_bytes(self.slots, slots_bytes)
        self._gpu_slots = gpu_bytes(gpu_slots, gpu_slots_bytes) if gpu_slots else None
        self.proxy: GpuProxy | None = None
        self._near, self._receivers = near, receivers
        self.is_at_barrier = False
        self._barriers_done = self._looks = 0
        self._is_abort_passed_on = False

    @property
    def abort_word(self) -> int:
        """Where kernels look whether to give up."""
        return self.address + ABORT_AT

    @property
    def barrier_word(self) -> int:
        """Where the kernel of a barrier has its words."""
        return self.address + BARRIER_AT

    def barrier_table(self) -> tuple[int, int]:
        """Where the kernel sets words when it has come: one that it waits for itself, and one that
        nobody looks at.
        """
        return self.barrier_word, self.barrier_word + FLAG_LINE_BYTES

    def slots_of(self, plan: Plan) -> int:
        """Where kernels have a plan's slots: in GPU memory if there are any and the proxy need not
        look at them.
        """
        return self.gpu_slots if self.gpu_slots and may_be_on_gpu(plan) else self.slots

    def proxy_of(self, plan: Plan) -> GpuProxy:
        """A proxy for a plan."""
        of_rank = self.data_comm, plan, self.data_comm.rank, self.words
        if self.slots_of(plan) != self.slots:
            return GpuProxy(*of_rank, self._gpu_slots)
        return GpuProxy(*of_rank, self._slots, self._near, self._receivers)

    def clear(self, proxy: GpuProxy) -> None:
        """Clear what a plan's launches have left, before any rank runs more."""
        where = net_layout(proxy.plan, proxy.rank)
        ctypes.memset(self.address + CONTROL_BYTES, 0, where.words_end - CONTROL_BYTES)
        if not may_be_on_gpu(proxy.plan):  # flags of earlier launches
            ctypes.memset(self.slots, 0, where.slots_bytes)
        self.data_comm.calm()  # a rank may have refused a plan, after which the sweep goes on
        self.words[ABORT_AT // _WORD] = 0
        self._is_abort_passed_on = False
        proxy.clear()

    def is_aborted(self) -> bool:
        """Whether a kernel or host of this rank gave up, or was told to."""
        return self.words[ABORT_AT // _WORD] != 0

    def abort(self) -> None:
        """End the waits of the rank's kernels, and let the other ranks do so."""
        self.words[ABORT_AT // _WORD] = 1
        if not self._is_abort_passed_on:
            self._is_abort_passed_on = True
            self.data_comm.abort()

    def turns(self) -> None:
        """Some turns of the proxy, and now and then a look at the other ranks. Raises
        RankLostError.
        """
        assert self.proxy is not None
        if not self.is_aborted():
            for _ in range(TURNS):
                self.proxy.turn()
        self._looks += 1
        if self._looks % LOOK == 0:
            self.look()
            os.sched_yield()

    def look(self) -> bool:
        """Pass on what ended, here or elsewhere; whether anything did."""
        if self.is_aborted():
            self.abort()
        elif self.data_comm.is_aborted():
            self._is_abort_passed_on = True
            self.words[ABORT_AT // _WORD] = 1
        return self.is_aborted()

    def wait(self, card: Card, deadline_s: float, barrier_s: float) -> None:
        """Meet if kernels do, and give turns until the stream is empty and all messages have left.
        Raises HangError, RankLostError.
        """
        assert self.proxy is not None
        end = time.monotonic() + deadline_s
        try:
            if self.is_at_barrier:
                self._barrier(barrier_s)
            card.wait(deadline_s, self.turns)
            while not self.proxy.is_idle() and not self.is_aborted():
                self.turns()
                if time.monotonic() > end:
                    raise HangError(self._holds_back())
        except HangError:
            self.abort()
            raise
        self.look()

    def _holds_back(self) -> str:
        return f"the messages of rank {self.data_comm.rank} do not leave"

    def _barrier(self, limit_s: float) -> None:
        """All hosts are here: let the kernel of the barrier go on."""
        assert self.proxy is not None
        self.is_at_barrier = False
        self._barriers_done += 1
        missing = self.data_comm.barrier(limit_s, self.proxy, self.look)
        if missing and self.is_aborted():
            raise HangError(f"rank {self.data_comm.rank} was told to stop")
        if missing == [self.data_comm.rank]:
            raise HangError(self._holds_back())
        if missing:
            raise HangError(
                f"rank {self.data_comm.rank} waited for rank {missing[0]} to begin",
                suspect=((-1,), missing[0]),
            )
        self.words[BARRIER_AT // _WORD + _OUTSIDE] = self._barriers_done

    def close(self) -> bool:
        """Give the communicator back. Returns whether the memory may be given back, too: not while
        a message may still come.
        """
        if self._receivers is not None:
            self._receivers.close()
        is_quiet = self.proxy is None or not any(end.pending for end in self.proxy.ends)
        if is_quiet:
            self.data_comm.close()
        return is_quiet


def slots_offset(words_bytes: int) -> int:
    """Where slots begin behind so many bytes of words: on a page, which MPI copies from."""
    return -(-words_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def may_be_on_gpu(plan: Plan) -> bool:
    """Whether a plan's slots can lie in GPU memory: not where the proxy looks at their lines."""
    return plan.proto == "simple"


def net_bytes(plans: Sequence[Plan], *, has_gpu_slots: bool) -> tuple[int, int, int]:
    """Bytes of words, of slots in host memory and of slots in GPU memory that ranks need for any of
    the plans.
    """
    words = slots = gpu_slots = 0
    for plan in plans:
        for where in (net_layout(plan, rank) for rank in range(plan.n)):
            words = max(words, where.words_end)
            if has_gpu_slots and may_be_on_gpu(plan):
                gpu_slots = max(gpu_slots, where.slots_bytes)
            else:
                slots = max(slots, where.slots_bytes)
    return words, slots, gpu_slots


def _host_bytes(address: int, size: int) -> memoryview:
    """Memory of this process, as MPI takes it."""
    return memoryview((ctypes.c_ubyte * max(1, size)).from_address(address)).cast("B")


def gpu_bytes(address: int, size: int) -> Buffer:
    """Memory of a GPU, as an MPI takes it that knows of GPUs."""
    from mpi4py import MPI

    kind: MpiModule = getattr(MPI, "buffer", None) or MPI.memory  # its name before mpi4py 4
    return kind.fromaddress(address, size)


def why_not_cuda_aware(environment: Mapping[str, str] = os.environ) -> str:
    """Why messages of the MPI library cannot lie in a GPU's memory, as far as it says, or an empty
    text.
    """
    from mpi4py import MPI

    loaded = ctypes.CDLL(MPI.__file__)  # and what it is linked with
    # MVAPICH's switch
    if environment.get("MV2_USE_CUDA") == "1" or environment.get("MVP_USE_CUDA") == "1":
        return ""
    name = library_name(MPI.Get_library_version())
    query = getattr(loaded, "MPIX_Query_cuda_support", None)
    if query is None:
        return f"{name} does not say whether it takes GPU memory"
    if query():
        return ""
    return f"{name} takes no GPU memory: it was built without CUDA, or told to leave it"
