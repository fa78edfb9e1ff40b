"""FlashInfer's allreduce of TensorRT-LLM, from the wheel flashinfer-python. Written by its
documentation of 0.7, and not run yet.
"""

import socket

import torch
from flashinfer import comm
from flashinfer.comm.mnnvl import TorchDistBackend
from torch import distributed

ON_GPUS = True
OPS = ("allreduce",)
DTYPES = ("float16", "bfloat16", "float32")
WIDTH, MOST = 1024, 4 << 20  # elements of a token, and of an input


class Ranks:
    def __init__(self, rank):
        self.rank, self.workspaces = rank, {}
        self.device = torch.device("cuda", rank.device)
        torch.cuda.set_device(self.device)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = rank.allgather(b"%d" % free.getsockname()[1])[0].decode()
        distributed.init_process_group(
            "nccl", f"tcp://127.0.0.1:{port}", rank=rank.rank, world_size=rank.ranks
        )
        self.stream = torch.cuda.ExternalStream(rank.stream, self.device)

    def workspace(self, dtype):
        if dtype not in self.workspaces:
            self.workspaces[dtype] = comm.create_allreduce_fusion_workspace(
                backend="trtllm",
                world_size=self.rank.ranks,
                rank=self.rank.rank,
                max_token_num=MOST // WIDTH,
                hidden_dim=WIDTH,
                dtype=dtype,
                comm_backend=TorchDistBackend(),
            )
        return self.workspaces[dtype]

    def run(self, call):
        if call.count % WIDTH or call.count > MOST:
            raise NotImplementedError(f"multiples of {WIDTH} elements, at most {MOST}")
        dtype = getattr(torch, call.dtype)
        source, target = (
            torch.as_tensor(one, device=self.device).view(dtype).view(-1, WIDTH)
            for one in (call.source, call.target)
        )
        with torch.cuda.stream(self.stream):
            comm.allreduce_fusion(
                input=source,
                workspace=self.workspace(dtype),
                pattern=comm.AllReduceFusionPattern.kAllReduce,
                output=target,
            )


make = Ranks
