"""What warnings of NCCL, errors of its users and numbers in them mean: the tables of
profiles/causes as values.

    [[causes]]       the first of a file with a line that fits is taken
      lines          regular expressions, searched in a line whatever its capitals
      severity       fault if absent
      is_general     says that something failed, not what: it comes behind what does
      source         threads where it was found
    [completions.N]  a status of a work completion
    [xids.N]         a number of NVIDIA's driver
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from collbench.core import catalog
from collbench.doctor.finding import Severity

Reader = Literal["nccl", "programs"]
_MOST_SEARCHED = 2000  # characters of a line
IB_COMPLETION = re.compile(
    r"Got (?:probing )?completion (?:from peer (?P<peer>\S+) )?with.{0,40}?"
    r"(?:error |status=\D{0,40}?)(?P<status>\d{1,3})",
    re.IGNORECASE,
)
XID = re.compile(
    r"\bS?Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]{3,20})(?: GPU-I:\d+)?\): (?P<code>\d{1,5})(?:,|\b)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownError:
    """One kind of warning. name: of the finding. is_general: not what failed, but that it did."""

    name: str
    why: str
    change: str
    severity: Severity = "fault"
    is_general: bool = False


def known_error(text: str, reader: Reader = "nccl") -> KnownError | None:
    """The kind of a warning; None if none fits. reader: whose words it may be.

    >>> known_error("Error: failed to extend /dev/shm/nccl-a to 33030532 bytes").name
    'shm-full'
    >>> known_error("ssh: Could not resolve hostname n1", "programs").name
    'host-name'
    """
    text = text[:_MOST_SEARCHED]
    return next((error for pattern, error in _causes(reader) if pattern.search(text)), None)


@functools.cache
def _causes(reader: Reader) -> tuple[tuple[re.Pattern[str], KnownError], ...]:
    return tuple(
        (re.compile("|".join(f"(?:{line})" for line in one["lines"]), re.I), _error(one))
        for one in catalog.load("causes", reader)["causes"]
    )


def _error(table: Mapping[str, Any]) -> KnownError:  # Any: values of TOML
    source = f" ({table['source']})" if "source" in table else ""
    return KnownError(
        name=table["name"],
        why=" ".join(table["why"].split()) + source,
        change=" ".join(table["change"].split()),
        severity=table.get("severity", "fault"),
        is_general=table.get("is_general", False),
    )


@functools.cache
def numbered(kind: Literal["completions", "xids"]) -> Mapping[int, KnownError]:
    """What numbers mean.

    >>> numbered("completions")[12].name, numbered("xids")[79].name
    ('RETRY_EXC_ERR', 'GPU has fallen off the bus')
    """
    tables = catalog.load("causes", "numbers")[kind]
    return {int(number): _error(table) for number, table in tables.items()}
