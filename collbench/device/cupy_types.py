"""The border to CuPy: the names of its modules and types here. CuPy is optional, and mypy does not
see it (see pyproject.toml), so each of them is Any.
"""

from typing import Any, TypeAlias

Cupy: TypeAlias = Any  # cupy
Runtime: TypeAlias = Any  # cupy.cuda.runtime
Stream: TypeAlias = Any  # cupy.cuda.Stream
Nvrtc: TypeAlias = Any  # cupy.cuda.nvrtc, or what is called alike
Cublas: TypeAlias = Any  # cupy.cuda.cublas
Nccl: TypeAlias = Any  # cupy.cuda.nccl, its communicator and its id
