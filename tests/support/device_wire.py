"""The layout of a chunk in a slot of ll and sentinel, by thread, and of ll128, by warp: the bytes
of user memory, and the 4-byte words of the slot.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collbench.planning.protocols import sentinel

LANES = 2  # threads (ll, sentinel) or warps (ll128) of a CTA
WORD = np.dtype("<u4")
MARKER = int.from_bytes([sentinel.MARKER_BYTE] * 4)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WireShare:
    """One thread's (ll, sentinel) or warp's (ll128) part of a chunk: its bytes of user memory, and
    its 4-byte words of a slot.
    """

    index: np.ndarray  # of its bytes in the chunk; some lie beyond its end
    is_there: np.ndarray  # which of them do not
    words: np.ndarray  # where each four of them lie in the slot
    flags: np.ndarray  # the words that hold the flag
    zeros: np.ndarray  # the words that hold its upper half

    def loaded(self, memory: np.ndarray) -> np.ndarray:
        """Its part of user memory; zeros beyond the end."""
        found = np.zeros(len(self.index), np.uint8)
        found[self.is_there] = memory[self.index[self.is_there]]
        return found

    def store(self, memory: np.ndarray, payload: np.ndarray) -> None:
        memory[self.index[self.is_there]] = payload[self.is_there]

    @property
    def is_marked(self) -> bool:
        """Whether words say by themselves that they came."""
        return not len(self.flags)

    def has_arrived(self, memory: np.ndarray, flag: int) -> bool:
        slot = memory.view(WORD)
        if self.is_marked:
            return not (slot[self.words] == MARKER).any()
        if slot[self.flags[-1]] != flag:
            return False  # what most looks find
        return bool((slot[self.flags] == flag).all() and not slot[self.zeros].any())

    def received(self, memory: np.ndarray) -> np.ndarray:
        slot = memory.view(WORD)
        found: np.ndarray = slot[self.words].view(np.uint8)
        if self.is_marked:
            slot[self.words] = MARKER
        return found

    def send(self, memory: np.ndarray, payload: np.ndarray, flag: int) -> None:
        slot, words = memory.view(WORD), payload.view(WORD)
        if self.is_marked:
            assert (slot[self.words] == MARKER).all(), "a slot is filled before it was cleared"
            words = np.where(words == MARKER, MARKER >> 1, words)
        slot[self.words], slot[self.flags], slot[self.zeros] = words, flag, 0


@lru_cache(maxsize=4096)
def wire_share(proto: str, size: int, lane: int) -> WireShare:
    """The part of a chunk of a size. A thread has every LANES-th line, a warp every LANES-th
    tile.
    """
    payload, whole = _UNITS[proto]
    units = np.arange(lane, -(-size // payload), LANES)[:, None]
    words, flags, zeros = _WORDS[proto]
    index, words, flags, zeros = (
        units * payload + np.arange(payload),
        units * (whole // 4) + words,
        units * (whole // 4) + flags,
        units * (whole // 4) + zeros,
    )
    # the last tile is half a tile
    if proto == "ll128" and len(units) and size - int(units[-1, 0]) * payload <= payload // 2:
        half = (part[-1, : part.shape[1] // 2] for part in (index, words, flags, zeros))
        index, words, flags, zeros = (
            np.concatenate([part[:-1].reshape(-1), last])
            for part, last in zip((index, words, flags, zeros), half, strict=True)
        )
    index = index.reshape(-1)
    return WireShare(
        index=index,
        is_there=index < size,
        words=words.reshape(-1),
        flags=flags.reshape(-1),
        zeros=zeros.reshape(-1),
    )


def slot_bytes(proto: str, payload: int) -> int:
    """The bytes of a slot that a payload takes."""
    one, whole = _UNITS[proto]
    return -(-payload // one) * whole


def _words_of_a_tile() -> tuple[np.ndarray, np.ndarray]:
    """ll128.cu: the words of a tile that hold payload, in order, and those that hold flags."""
    units, flags = [[0] * 4 for _ in range(120)], []
    for g in range(4):
        for lane in range(32):
            at, ends_line = 128 * g + 4 * lane, lane % 8 == 7
            if ends_line:
                flags.append(at + 2)
            if g % 2 == 0:
                later = at + 128 if ends_line else at + 2
                units[g // 2 * 60 + lane] = [at, at + 1, later, later + 1]
            elif not ends_line:
                units[g // 2 * 60 + 32 + lane - lane // 8] = [at, at + 1, at + 2, at + 3]
    return np.array(units).reshape(-1), np.array(flags)


# payload and bytes of a line, and of a tile
_UNITS = {"ll": (8, 16), "sentinel": (16, 16), "ll128": (1920, 2048)}
_NONE = np.empty(0, int)
_TILE_WORDS, _TILE_FLAGS = _words_of_a_tile()
# the words of payload, of flags, and of the flags' upper halves
_WORDS = {
    "ll": (np.array([0, 2]), np.array([1, 3]), _NONE),
    "sentinel": (np.arange(4), _NONE, _NONE),
    "ll128": (_TILE_WORDS, _TILE_FLAGS, _TILE_FLAGS + 1),
}
