"""Every check names each fault that is planted for it, and is silent on clean machines."""

from itertools import chain

import pytest

from collbench.bench.experiment import Experiment
from collbench.doctor.check import (
    Evidence,
    check,
    description,
    experiment,
    find,
    identifiers,
    why_not_run,
)
from tests.doctor.plants import PLANTS, Plant, left_out
from tests.support.evidence import clean


@pytest.mark.parametrize("identifier", identifiers())
def test_a_check_keeps_the_contract(identifier: str) -> None:
    asked = description(identifier)
    assert PLANTS.get(identifier), "plant a fault for every check: tests/doctor/plants.toml"
    assert asked.title[-1:] not in ("", ".")
    assert all(map(Evidence(hosts=()).why_not, asked.needs)), "a need that nothing can lack is none"
    paragraphs = asked.explanation.strip().split("\n\n")
    assert len(paragraphs) >= 3, "what it is, how it is read, what to do"
    assert all(one.rstrip().endswith((".", ":", "```")) for one in paragraphs)
    assert bool(asked.no_experiment) != hasattr(check(identifier), "experiment")


@pytest.mark.parametrize(
    ("identifier", "plant"),
    [(identifier, plant) for identifier, plants in PLANTS.items() for plant in plants],
    ids=[f"{name}: {plant.name}" for name, plants in PLANTS.items() for plant in plants],
)
def test_a_planted_fault_is_named(identifier: str, plant: Plant) -> None:
    assert not why_not_run(identifier, plant.evidence)
    findings = find(plant.evidence, (identifier,))
    named = [one for one in findings if one.subject == plant.subject and plant.words in one.seen]
    assert named, [(one.subject, one.seen) for one in findings]
    assert named[0].severity == plant.severity
    for one in findings:
        assert one.check == identifier
        assert one.why.endswith(".")
        assert one.change
        assert not one.change.endswith(".")
        wanted = experiment(one, plant.evidence)
        assert isinstance(wanted, Experiment) or (wanted and not wanted.endswith("."))


def test_plants_are_named_by_their_own_check_alone() -> None:
    """A fault is no reason for others to find faults."""
    for identifier, plants in PLANTS.items():
        for plant in plants:
            others = {
                one.check
                for one in find(plant.evidence)
                if one.severity == "fault" and one.check != identifier
            }
            assert not others, (plant.name, others)


def test_noise_of_one_percent_makes_no_gpu_slow() -> None:
    for seed in range(-200, 0):
        assert not list(check("slow-gpu").find(Evidence(hosts=(), left_out=left_out(seed, 1.0))))


def test_clean_machines_have_no_findings() -> None:
    found = [
        (one.check, one.subject, one.seen)
        for one in chain.from_iterable(map(find, clean()))
        if one.severity != "remark"
    ]
    assert not found
