"""The findings of the doctor as one page of HTML without a script, which requests nothing."""

from collections.abc import Sequence

from collbench.core.web.html import element, facts_list, section, table
from collbench.core.web.parts import document, style
from collbench.core.web.svg import clean
from collbench.doctor.finding import Finding
from collbench.doctor.tables.findings import CheckRun, cost_texts, mark

_CLASSES = {"COST": "worse", "RISK": "cannot-tell", "NOTE": "same"}


def page(
    findings: Sequence[Finding],
    runs: Sequence[CheckRun],
    explanations: dict[str, str],
    hosts: Sequence[str],
    lead: str,
) -> str:
    """The page. explanations: of the checks that found something, by their identifiers."""
    parts = [_finding(number, one) for number, one in enumerate(findings, 1)]
    parts += [_explanation(name, text) for name, text in explanations.items()]
    looked = [(run.identifier, run.looks, run.title, run.reason) for run in runs]
    heads = ("check", "looked", "at", "why not")
    parts.append(
        section("checks", "What was looked at", table(heads, looked, kind="cards", label="checks"))
    )
    look = style()
    text = document(
        "doctor.html",
        f"What slows communication down on {', '.join(hosts)}",
        look,
        lead=clean(lead),
        body="\n".join(parts),
    )
    return text.encode("utf-8", "replace").decode()  # a host's name may hold what is no text


def _finding(number: int, finding: Finding) -> str:
    label = mark(finding)
    facts = [
        ("seen", finding.seen),
        ("why", finding.why),
        *(("costs", text) for text in cost_texts(finding)),
        ("change", finding.change),
        ("risk", finding.risk),
    ]
    return section(
        f"finding-{number}",
        f"{label}: {finding.check}, {finding.subject}",
        element("p", {"COST": "This costs here.", "RISK": "This may cost."}.get(label, ""),
                class_=_CLASSES[label]) if label != "NOTE" else "",
        facts_list(facts),
    )  # fmt: skip


def _explanation(identifier: str, text: str) -> str:
    return section(
        f"about-{identifier}",
        f"About {identifier}",
        *(
            element("p", " ".join(paragraph.replace("`", "").split()))
            for paragraph in text.strip().split("\n\n")
        ),
    )
