"""A machine as a tree: hosts, CPUs, host bridges, PCIe switches, devices; at each the link
above it, behind each GPU its NVLinks.

Links that make it no tree - sockets, NVLinks, networks - stand as text at their ends. What no
CPU leads to comes last. Hosts that are equal are shown once.
"""

from collbench.core.text import NARROW_COLUMNS
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.rates import link_label
from collbench.machine.views.labels import (
    Paint,
    alike,
    between,
    heading,
    labels,
    link_text,
    plain,
    rate_text,
)
from collbench.machine.views.matrix import runs, wrapped_after

_ASIDE = ("nvlink", "xgmi", "socket", "network")  # kinds of links that lead across the tree
_KIND_ORDER = {"cpu": 0, "root": 1, "pci": 2, "gpu": 3, "nic": 4, "nvswitch": 5, "net": 6}


def tree(topology: Topology, paint: Paint = plain, columns: int = NARROW_COLUMNS) -> list[str]:
    r"""The whole view.

    >>> from collbench.machine.topology.rates import pcie_link
    >>> nodes = Node(id="c", kind="cpu", index=0, name="AMD"), Node(id="gpu0", kind="gpu", index=0)
    >>> print(
    ...     "\n".join(
    ...         tree(Topology(name="one", nodes=nodes, links=(pcie_link("c", "gpu0", 4, 16),)))
    ...     )
    ... )
    one: 1 x GPU of unknown model
    └─ CPU0, AMD
       └─ GPU0, PCIe 4.0 x16, 23.9 GB/s
    """
    groups = alike(topology)
    lines: list[str] = []
    for group in groups:
        lines += [*([""] if lines else []), heading(group)]
        lines += _Walk(group.part, paint, columns).lines()
    over = between(topology, groups)
    return [*lines, "", *over] if over else lines


class _Walk:
    """One host, walked from its CPUs down; no node twice."""

    def __init__(self, one: Topology, paint: Paint, columns: int) -> None:
        self._one, self._paint, self._seen = one, paint, set[str]()
        self._columns = columns
        self._labels = labels(one)
        self._is_one_model = len({node.name for node in one.gpus}) == 1

    def lines(self) -> list[str]:
        """Every node of the host once."""
        tops = self._tops()
        texts: list[str] = []
        # A stack of our own: a file may nest deeper than Python calls.
        stack: list[tuple[Node, Link | None, str, bool]] = [
            (node, None, "", place == len(tops) - 1)
            for place, node in reversed(list(enumerate(tops)))
        ]
        self._seen |= {node.id for node in tops}
        while stack:
            node, above, indent, is_last = stack.pop()
            text, *more = self._texts(node, above, self._columns - len(indent) - 3)
            texts.append(f"{indent}{'└─ ' if is_last else '├─ '}{text}")
            inner = indent + ("   " if is_last else "│  ")
            below = self._below(node)
            more += self._aside(node)
            texts += [f"{inner}{'│  ' if below else '   '}{text}" for text in more]
            stack += [
                (child, link, inner, place == len(below) - 1)
                for place, (child, link) in reversed(list(enumerate(below)))
            ]
        return texts

    def _tops(self) -> list[Node]:
        """CPUs, and what no way leads to from one of them or from an earlier top."""
        tops = list(self._one.of_kind("cpu"))
        reached = self._reach({node.id for node in tops})
        for node in sorted(self._one.nodes, key=lambda node: _KIND_ORDER[node.kind]):
            if node.id not in reached:
                tops.append(node)
                reached |= self._reach({node.id})
        return tops

    def _reach(self, start: set[str]) -> set[str]:
        reached, ahead = set(start), list(start)
        while ahead:
            here = ahead.pop()
            for link in self._one.links_of[here]:
                there = link.other(here)
                if link.kind not in _ASIDE and there not in reached:
                    reached.add(there)
                    ahead.append(there)
        return reached

    def _below(self, node: Node) -> list[tuple[Node, Link]]:
        """Nodes that hang at this one and were not shown before."""
        children: list[tuple[Node, Link]] = []
        for link in self._one.links_of[node.id]:
            there = link.other(node.id)
            if link.kind not in _ASIDE and there not in self._seen:
                self._seen.add(there)
                children.append((self._one.by_id[there], link))
        return sorted(
            children,
            key=lambda pair: (
                _is_device(pair[0]),
                pair[0].kind,
                pair[0].index if _is_device(pair[0]) else 0,
            ),
        )

    def _texts(self, node: Node, above: Link | None, columns: int) -> list[str]:
        """The lines of a node: a CPU may have a long list of logical CPUs."""
        text = self._text(node, above)
        if node.kind != "cpu":
            return [text]
        return [line.strip() for line in wrapped_after(text, columns, ", ")]

    def _text(self, node: Node, above: Link | None) -> str:
        label = self._labels[node.id]
        is_in_heading = node.kind == "gpu" and self._is_one_model  # by the heading
        parts = (
            [node.name]
            if node.name.startswith(label)
            else [label, *([node.name] if node.name and not is_in_heading else [])]
        )
        parts += [f"CPUs {node.affinity}"] if node.kind == "cpu" and node.affinity else []
        parts += [node.address] if _is_device(node) and node.address else []
        if above is not None and not (node.kind == "root" and above.usable_gbs is None):
            parts.append(self._paint(link_text(above), above.kind))
        return ", ".join(parts)

    def _aside(self, node: Node) -> list[str]:
        """Links across the tree, those that are alike in one line."""
        same: dict[tuple[str, str, str], list[str]] = {}
        for link in self._one.links_of[node.id]:
            if link.kind in _ASIDE:
                same.setdefault(
                    (link_label(link), rate_text(link.usable_gbs), link.kind), []
                ).append(self._labels[link.other(node.id)])
        lines = []
        for (what, rate, kind), others in same.items():
            each = f"{rate} GB/s" if rate[:1].isdigit() else "rate unknown"
            lines.append(
                self._paint(
                    f"{what} to {', '.join(runs(others))},"
                    f" {each}{' each' if len(others) > 1 else ''}",
                    kind,
                )
            )
        return lines


def _is_device(node: Node) -> bool:
    return node.kind in ("gpu", "nic")
