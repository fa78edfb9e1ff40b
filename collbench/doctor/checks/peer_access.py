"""Whether GPUs may use each other's memory, while their siblings may."""

from collections.abc import Iterable, Sequence

from collbench.core.text import listed
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._siblings import bridges_above
from collbench.machine.discovery.recording import PairRecord, Recording
from collbench.machine.topology.model import P2P_MEANINGS, numbered

_OK, _REGISTRY = 0, 4  # NVML_P2P_STATUS_OK, _DISABLED_BY_REGKEY
_SOCKETS = 50  # NVML_TOPOLOGY_SYSTEM
_CODES = tuple(P2P_MEANINGS)


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        pairs = _pairs(host)
        denied = [pair for pair in pairs if _status(pair) != _OK]
        if denied and len(denied) == len(pairs):
            yield _all_denied(evidence, host, denied)
        elif denied:
            yield from _some_denied(evidence, host, pairs, denied)


def _pairs(host: Recording) -> list[PairRecord]:
    """Pairs whose statuses are known, each once: the worse direction. Without divided GPUs."""
    divided = {gpu.index for gpu in host.usable_gpus if gpu.has_mig}
    pairs: dict[frozenset[int], PairRecord] = {}
    for pair in host.pairs:
        ends = frozenset((pair.a, pair.b))
        is_known = pair.read is not None and pair.write is not None
        if is_known and not divided & ends and (ends not in pairs or _status(pair) != _OK):
            pairs[ends] = pair
    return list(pairs.values())


def _ends(pairs: Iterable[PairRecord]) -> set[int]:
    """All GPUs of some pairs."""
    return {end for pair in pairs for end in (pair.a, pair.b)}


def _status(pair: PairRecord) -> int:
    """The status that denies access; OK if none does."""
    return pair.read or pair.write or _OK


def _all_denied(evidence: Evidence, host: Recording, denied: Sequence[PairRecord]) -> Finding:
    gpus = _ends(denied)
    names = [gpu.name for gpu in host.usable_gpus if gpu.index in gpus and gpu.name]
    is_policy = bool(names) and all("GeForce" in name for name in names)
    return told(
        "no-peer-access",
        evidence.on(numbered("GPU", gpus), host),
        f"no pair has peer access ({_codes(denied)})"
        + (": NVIDIA's policy for GeForce cards" if is_policy else _suspects(host, denied)),
        severity="remark" if is_policy or not names else "risk",
        change="nothing: use what goes through the host's memory well (collbench sweep shows it)"
        if is_policy
        else _change(host, denied),
    )


def _some_denied(
    evidence: Evidence, host: Recording, pairs: Sequence[PairRecord], denied: Sequence[PairRecord]
) -> Iterable[Finding]:
    """GPUs that are denied by all others, then what is left, by status."""
    allowed = [pair for pair in pairs if pair not in denied]
    alone = _ends(denied) - _ends(allowed)
    groups: dict[str, list[PairRecord]] = {}
    for pair in denied:
        outcasts = sorted(alone & {pair.a, pair.b})
        groups.setdefault(f"GPU {outcasts[0]}" if outcasts else _codes([pair]), []).append(pair)
    farthest = max((pair.ancestor for pair in allowed if pair.ancestor is not None), default=-1)
    for group, some in groups.items():
        is_outcast = group.startswith("GPU ")
        is_odd = any(pair.ancestor is not None and pair.ancestor <= farthest for pair in some)
        others = "others that are as far apart have it" if is_odd else "nearer ones have it"
        yield told(
            "odd-peer-access",
            evidence.on(group if is_outcast else _call(some), host),
            f"{'none of its pairs has' if is_outcast else 'no'} peer access"
            f" ({_codes(some)}), where {others}{_suspects(host, some)}",
            severity="fault" if is_odd else "risk",
            change=_change(host, some),
        )


def _call(pairs: Sequence[PairRecord]) -> str:
    """A pair by its ends, several by all GPUs."""
    if len(pairs) == 1:
        low, high = sorted(_ends(pairs))
        return f"GPUs {low} and {high}"
    return f"{len(pairs)} pairs of {numbered('GPU', _ends(pairs))}"


def _codes(pairs: Iterable[PairRecord]) -> str:
    """Statuses as nvidia-smi writes them, with their meaning."""
    of_code = dict(enumerate(_CODES))
    codes = dict.fromkeys(of_code.get(_status(pair), _CODES[-1]) for pair in pairs)
    return ", ".join(f"{code}: {P2P_MEANINGS[code]}" for code in codes)


def _suspects(host: Recording, pairs: Sequence[PairRecord]) -> str:
    """What is known to be in the way."""
    if any(_status(pair) == _REGISTRY for pair in pairs):
        return ""  # which says it all
    suspects = []
    if host.rdma.iommu == "translated":
        suspects.append("an IOMMU that translates")
    if _are_sockets_between(pairs):
        suspects.append("the link between sockets")
    if host.processor.has_hypervisor:
        suspects.append("a virtual machine")
    addresses = {gpu.index: gpu.address or "" for gpu in host.usable_gpus}
    has_bridges = any(
        len(bridges_above(host, addresses.get(end, "")) or ()) > 1 for end in _ends(pairs)
    )
    if has_bridges and not suspects:
        suspects.append("ACS in the bridges")
    return f"; in the way may be {listed(suspects)}" if suspects else ""


def _are_sockets_between(pairs: Sequence[PairRecord]) -> bool:
    return all(pair.ancestor == _SOCKETS for pair in pairs)


def _change(host: Recording, pairs: Sequence[PairRecord]) -> str:
    if any(_status(pair) == _REGISTRY for pair in pairs):
        return "remove RegistryDwords from the options of the module nvidia (/etc/modprobe.d)"
    if host.processor.has_hypervisor:
        return "ask the provider of the virtual machine: its host decides"
    if host.rdma.iommu == "translated":
        return "iommu=pt in the kernel's command line, and ACS off in the bridges (BIOS, setpci)"
    if _are_sockets_between(pairs):
        return "place GPUs that work together below one socket"
    return "ACS off in the bridges (BIOS, setpci), or other slots: below one switch"
