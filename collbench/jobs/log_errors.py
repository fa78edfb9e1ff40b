"""What warnings of NCCL, errors of its users and numbers in them mean: the tables of
profiles/causes as values.

    [[causes]]       the first of a file with a line that fits is taken
      lines          regular expressions, searched in a line whatever its capitals
      severity       fault if absent
      is_general     says that something failed, not what: it comes behind what does
      source         threads where it was found
    [completions.N]  a status of a work completion
    [xids.N]         a number of NVIDIA's driver

A why says what the line means; where that does not prove a cause, it lists what is known to lead
there. The file catalog.toml has what many numbers share: [kinds.NAME] as above, and in [xids],
[sxids] and [cuda] a number's name and kind; [hip] has AMD's words in the place of NVIDIA's. The
file harmless.toml has words of errors that did not happen, and words.toml has speakers: who says a
text, and the pattern that tells it.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from collbench.core import catalog
from collbench.doctor.check import Severity
from collbench.jobs.literals import literals

Reader = Literal["nccl", "programs", "words"]
_TABLES: Mapping[Reader, tuple[str, ...]] = {
    "nccl": ("nccl",),
    "programs": ("programs", "systems"),
    "words": ("words",),  # of errors that no other table knows
}
_MOST_SEARCHED = 2000  # characters of a line
IB_COMPLETION = re.compile(
    r"(?:Got (?:probing )?completion (?:from peer (?:(?P<peer>\S+) )?)?(?:with)?.{0,40}?"
    r"(?:error |status=\D{0,40}?)|\b(?:Failed|item failed:) status |IBV_WC_SUCCESS\W{1,4})"
    r"(?P<status>\d{1,3})",
    re.IGNORECASE,
)
XID = re.compile(
    r"\bS?Xid(?: \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]{3,20})(?: GPU-I:\d+)?\): |=)"
    r"(?P<code>\d{1,5})\b(?: on +Device=(?P<device>[\w-]+))?"
)

_CUDA = re.compile(
    r"(?:(?:cuda|HIP)(?: runtime| driver)? (?:error|failure)|\berror code|\bcode|cudaError_t"
    r"|CUresult|\bcu(?:da)?[A-Z]\w+ (?:returned|failed)(?: with(?: error)?)?)"
    r"[ :=(]{0,4}(?P<number>\d{1,3})\b|(?:cuda|hip)Error(?!NotReady)(?P<call>\w+)"
    r"|CUDA_ERROR_(?!NOT_READY)(?P<driver>\w+)",
    re.IGNORECASE,
)
_OF_HIP = re.compile(r"\bHIP\b|\bhip[A-Z]\w+")
NAMES_ERROR = re.compile(
    r"\b(?:errors?|fail(?:ed|s|ure|ures)?|fatal|abort(?:ed|ing|s)?|\w*(?:Error|Exception)|segfault|"
    r"killed|time[d-]? ?outs?|cannot|could ?n.t|could not|unable|refused|unreachable|denied|panic|"
    r"crash(?:ed)?|lost|hang|hung|stuck|corrupt(?:ed)?|conflicting|mismatch(?:ed)?|"
    r"insufficient)\b",
    re.IGNORECASE,
)
_ERROR_TEXTS = literals(NAMES_ERROR.pattern)
# what a line calls itself that says of less than an error
_MILD = re.compile(r"\b(?!ibwarn)\w*warn(?:ing)?\b|(?:\A|\[)W\d{4} |\[W\b|: W |deprecat", re.I)
NumberKind = Literal["completions", "xids", "sxids", "cuda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownError:
    """One kind of warning. name: of the finding. is_general: it says that something failed, and
    not what. is_open: the line may say itself why. place: of its row, by which those are ordered.
    """

    name: str
    why: str
    change: str
    severity: Severity = "fault"
    is_general: bool = False
    is_open: bool = False
    place: int = 0


@functools.lru_cache(64)  # a line is asked for several times
def without_harmless(text: str) -> str:
    """A text without the words of errors that did not happen.

    >>> without_harmless("0 errors, rank 0 failed"), without_harmless("word error rate 12.3%")
    (', rank 0 failed', 'word  12.3%')
    """
    small = text.lower()
    for texts, pattern in _harmless("words"):
        if not texts or _has_one(small, texts):
            text = pattern.sub("", text)
    return text


def names_error(text: str) -> bool:
    """Whether a text speaks of an error that happened.

    >>> names_error("loading failed"), names_error("0 errors"), names_error("mean error 0.1")
    (True, False, False)
    """
    small = text.lower()
    return (
        _has_one(small, _ERROR_TEXTS)
        and NAMES_ERROR.search(text) is not None
        and not any(
            (not texts or _has_one(small, texts)) and pattern.search(text)
            for texts, pattern in _harmless("lines")
        )
        and NAMES_ERROR.search(without_harmless(text)) is not None
    )


def _has_one(text: str, parts: Iterable[str]) -> bool:
    for part in parts:  # noqa: SIM110  twice as fast as any()
        if part in text:
            return True
    return False


def is_mild(text: str) -> bool:
    """Whether a line calls itself a warning.

    >>> is_mild("[TRT-LLM] [W] cannot load x"), is_mild("ibwarn: [9] cannot load x")
    (True, False)
    """
    return _MILD.search(text[:200]) is not None


@functools.cache
def _harmless(
    what: Literal["words", "lines"],
) -> tuple[tuple[frozenset[str], re.Pattern[str]], ...]:
    """Texts, one of which a line must contain if there are any, and the pattern that it fits."""
    rows = catalog.load("causes", "harmless")[what]
    return tuple((literals(one), re.compile(one, re.IGNORECASE)) for one in rows)


def known_error(text: str, reader: Reader = "nccl") -> KnownError | None:
    """The kind of a warning; None if none fits. reader: whose words it may be.

    >>> known_error("Error: failed to extend /dev/shm/nccl-a to 33030532 bytes").name
    'shm-full'
    >>> known_error("ssh: Could not resolve hostname n1", "programs").name
    'host-name'
    """
    text = text[:_MOST_SEARCHED]
    small = text.lower()
    known = None
    for texts, pattern, error in _causes(reader):
        if (
            any(one in small for one in texts)
            and pattern.search(text)
            and (reader != "programs" or pattern.search(without_harmless(text)))
        ):
            known = error
            break
    if reader != "nccl":
        return known
    if known is None or known.name.startswith("cuda-"):
        known = _of_cuda(_numbered_text(text) if known else text) or known
    return _in_hip(known) if known is not None and _OF_HIP.search(text) else known


def _in_hip(known: KnownError) -> KnownError:
    """An error of HIP, whose numbers and words are CUDA's, in the words of AMD's tools."""
    why, change = known.why, known.change
    for of_cuda, of_hip in catalog.load("causes", "catalog")["hip"].items():
        why, change = why.replace(of_cuda, of_hip), change.replace(of_cuda, of_hip)
    return replace(known, name=known.name.replace("cuda-", "hip-"), why=why, change=change)


def _of_cuda(text: str) -> KnownError | None:
    """What the number or the name of an error of CUDA or HIP means.

    >>> _of_cuda("CUDA_ERROR_LAUNCH_FAILED").why.split(":")[0]
    'CUDA error 719 (LaunchFailure)'
    """
    for found in _CUDA.finditer(text):
        name = (found["call"] or found["driver"] or "").replace("_", "").lower()
        number = int(found["number"]) if found["number"] else _cuda_numbers().get(name)
        known = numbered("cuda").get(number) if number else None
        if known is not None:
            why = f"CUDA error {number} ({known.name}): {known.why}"
            return replace(known, name="cuda-error", why=why)
    return None


def _numbered_text(text: str) -> str:
    """A line about CUDA, with the number that its words stand for."""
    small = text.lower()
    texts = catalog.load("causes", "catalog")["cuda_texts"]
    number = next((number for words, number in texts.items() if words.lower() in small), None)
    return f"{text} (CUDA error {number})" if number else text


@functools.cache
def _cuda_numbers() -> Mapping[str, int]:
    """Numbers by the names of the runtime and of the driver, in small letters."""
    rows = catalog.load("causes", "catalog")["cuda"].items()
    return {
        name.replace("_", "").lower(): int(number)
        for number, (call, _, *driver) in rows
        for name in (call, *driver)
    }


@functools.cache
def _causes(reader: Reader) -> tuple[tuple[frozenset[str], re.Pattern[str], KnownError], ...]:
    """What a line must contain for a pattern to match, the pattern, and what it means."""
    causes = (one for table in _TABLES[reader] for one in catalog.load("causes", table)["causes"])
    return tuple(
        (literals(line), re.compile(line, re.I), error)
        for place, one in enumerate(causes)
        for error in (error_of(one, place),)
        for line in one["lines"]
    )


@functools.cache
def words_of(reader: Reader) -> tuple[str, ...]:
    """Texts in small letters, one of which is in every line that a table knows."""
    every = {text for texts, *_ in _causes(reader) for text in texts}
    return tuple(one for one in every if not any(other in one for other in every - {one}))


def error_of(table: Mapping[str, Any], place: int = 0) -> KnownError:  # Any: values of TOML
    """The kind of warning of a table."""
    source = f" ({table['source']})" if "source" in table else ""
    is_general = table.get("is_general", False)
    return KnownError(
        name=table["name"],
        why=" ".join(table["why"].split()) + source,
        change=" ".join(table["change"].split()),
        severity=table.get("severity", "fault"),
        is_general=is_general,
        is_open=is_general or table.get("is_open", False),
        place=place,
    )


@functools.cache
def numbered(kind: NumberKind) -> Mapping[int, KnownError]:
    """What numbers mean.

    >>> numbered("completions")[12].name, numbered("sxids")[22003].name
    ('RETRY_EXC_ERR', 'link controller halt')
    """
    catalogue = catalog.load("causes", "catalog")
    kinds = catalogue["kinds"]
    rows = {
        int(number): error_of({"name": name, **kinds[of]})
        for number, (name, of, *_) in catalogue.get(kind, {}).items()
    }
    tables = catalog.load("causes", "numbers").get(kind, {})
    return rows | {int(number): error_of(table) for number, table in tables.items()}


def cut_note(kind: NumberKind, number: int, text: str) -> str:
    """What to say of a number at the end of a text that may be the first digits of another one, as
    where a line was cut at the width of a terminal.

    >>> cut_note("completions", 1, "with error 1"), cut_note("completions", 12, "error 12")
    (' The line ends there: digits may be missing.', '')
    """
    digits = str(number)
    others = (str(one) for one in numbered(kind) if one != number)
    is_open = text.rstrip().endswith(digits) and any(one.startswith(digits) for one in others)
    return " The line ends there: digits may be missing." * is_open
