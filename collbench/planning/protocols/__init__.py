"""The protocols: one a file, found by the file's name."""

from collbench.core.registry import Family

FAMILY = Family(__name__, __path__, "protocol")
