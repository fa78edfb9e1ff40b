"""FlashInfer's allreduce of TensorRT-LLM, on 2, 4 or 8 GPUs that reach each other's memory; from
the wheel flashinfer-python 0.7.2.
"""

import math
import pickle
from types import SimpleNamespace

import torch
from flashinfer import comm

ON_GPUS = True
OPS = ("allreduce",)
DTYPES = ("float16", "bfloat16", "float32")
NARROWEST, WIDEST = 256, 8192  # elements of a token, which one cluster of CTAs adds
MOST = 4 << 20  # elements of an input
# The first use ever compiles for minutes, and make has a limit.
comm.gen_trtllm_comm_module().build_and_load()


def meeting(rank):
    """How FlashInfer has ranks exchange what they know of their memory."""
    return SimpleNamespace(
        Get_rank=lambda: rank.rank,
        Get_size=lambda: rank.ranks,
        barrier=lambda: rank.allgather(b""),
        allgather=lambda data: [*map(pickle.loads, rank.allgather(pickle.dumps(data)))],
    )


class Ranks:
    def __init__(self, rank):
        self.ranks, self.device = rank.ranks, torch.device("cuda", rank.device)
        torch.cuda.set_device(self.device)
        self.stream = torch.cuda.ExternalStream(rank.stream, self.device)
        self.workspaces = {
            item_bytes: comm.create_allreduce_fusion_workspace(
                backend="trtllm",
                world_size=rank.ranks,
                rank=rank.rank,
                max_token_num=MOST // WIDEST,
                hidden_dim=WIDEST,
                dtype=dtype,
                comm_backend=meeting(rank),
            )
            for item_bytes, dtype in ((2, torch.float16), (4, torch.float32))
        }

    def run(self, call):
        width = math.gcd(call.count, WIDEST)
        if self.ranks not in (2, 4, 8) or width < NARROWEST or call.count > MOST:
            raise NotImplementedError(
                f"2, 4 or 8 ranks, and multiples of {NARROWEST} elements up to {MOST}"
            )
        dtype = getattr(torch, call.dtype)
        source, target = (
            torch.as_tensor(one, device=self.device).view(dtype).view(-1, width)
            for one in (call.source, call.target)
        )
        with torch.cuda.stream(self.stream):
            comm.allreduce_fusion(
                input=source,
                workspace=self.workspaces[dtype.itemsize],
                pattern=comm.AllReduceFusionPattern.kAllReduce,
                output=target,
            )


make = Ranks
