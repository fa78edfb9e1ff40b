"""Allreduce of ranks on CPUs: each writes a piece of its input where all can read it, and adds the
pieces of all.
"""

import os

import numpy as np

OPS = ("allreduce",)
DTYPES = ("int32", "int64", "float32", "float64")
IN_PLACE = True
PIECE = 128 << 10  # bytes
FLAG = 64
SHARED_BYTES = FLAG + 2 * PIECE  # a counter, and two slots in turn


class Ranks:
    def __init__(self, rank):
        self.rank, self.shared, self.pieces = rank.rank, rank.shared, 0
        self.written = [row[:FLAG].data.cast("q") for row in rank.shared]

    def run(self, call):
        most = PIECE // call.source.itemsize
        for first in range(0, call.count, most):
            source = call.source[first : first + most]
            target = call.target[first : first + most]
            # Who has come to a piece has read the one before, so the other slot is free.
            start = FLAG + self.pieces % 2 * PIECE
            slots = self.shared[:, start : start + source.nbytes].view(source.dtype)
            slots[self.rank] = source
            self.pieces += 1
            self.written[self.rank][0] = self.pieces
            for written in self.written:
                while written[0] < self.pieces:
                    os.sched_yield()
            np.add.reduce(slots, axis=0, out=target)


make = Ranks
