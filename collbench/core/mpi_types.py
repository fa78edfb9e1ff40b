"""The border to mpi4py: the names of its types here. mpi4py is optional, and mypy does not see it
(see pyproject.toml), so each of them is Any.
"""

from typing import Any, TypeAlias

MpiModule: TypeAlias = Any  # mpi4py.MPI
Comm: TypeAlias = Any  # mpi4py.MPI.Comm
Request: TypeAlias = Any  # mpi4py.MPI.Request, or an object with its methods
MatchedMessage: TypeAlias = Any  # mpi4py.MPI.Message, from a matched probe
Buffer: TypeAlias = Any  # memory for mpi4py: an array, a memoryview, its own MPI.buffer
