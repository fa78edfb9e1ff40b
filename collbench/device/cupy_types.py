"""The border to CuPy and nccl4py: the names of their modules and types here. Both are optional, and
mypy does not see them (see pyproject.toml), so each of them is Any.
"""

from typing import Any, TypeAlias

Cupy: TypeAlias = Any  # cupy
Runtime: TypeAlias = Any  # cupy.cuda.runtime
Stream: TypeAlias = Any  # cupy.cuda.Stream
Nvrtc: TypeAlias = Any  # cupy.cuda.nvrtc, or what is called alike
Cublas: TypeAlias = Any  # cupy.cuda.cublas
Nccl: TypeAlias = Any  # nccl.bindings.nccl, its communicator and its id
