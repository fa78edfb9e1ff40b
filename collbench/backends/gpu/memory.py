"""Memory of a GPU as other libraries take it, without a copy."""

import numpy as np

from collbench.core.dtypes import DtypeName, dtype


class GpuArray:
    """Elements at an address; those of types that NumPy has not by itself are whole numbers."""

    def __init__(self, address: int, size_bytes: int, name: DtypeName = "uint8") -> None:
        kind, item_bytes = dtype(name).numpy(), dtype(name).item_bytes
        self.address, self.size = address, size_bytes // item_bytes
        whole = np.dtype(f"u{item_bytes}")
        self.__cuda_array_interface__ = {
            "shape": (self.size,),
            "typestr": (kind if kind.isbuiltin == 1 else whole).str,
            "data": (address, False),
            "version": 2,
        }
