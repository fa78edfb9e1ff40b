"""The border to mpi4py: the names of its types here. mpi4py is optional, and mypy does not see it
(see pyproject.toml), so each of them is Any.
"""

from typing import Any, TypeAlias

MpiModule: TypeAlias = Any  # mpi4py.MPI
Comm: TypeAlias = Any  # mpi4py.MPI.Comm
Request: TypeAlias = Any  # mpi4py.MPI.Request, or what is asked alike
MatchedMessage: TypeAlias = Any  # mpi4py.MPI.Message, a message that a matched probe has found
Buffer: TypeAlias = Any  # what mpi4py takes as memory: an array, a memoryview, its own MPI.buffer
