"""The state of a machine before and after a sweep, as it is saved and shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.compare.load import load
from collbench.compare.page import page
from collbench.core.codec import dumps, loads
from collbench.core.errors import UsageError
from collbench.machine.gpus import GpuState
from collbench.machine.others import Health, MachineState, machine_state

GPU = GpuState(
    index=0,
    name="NVIDIA <H200>",
    sm_mhz=1980,
    sm_max_mhz=1980,
    temperature_c=41,
    power_w=120.5,
    power_limit_w=None,
    throttles=("throttled:power-cap",),
)
STATE = MachineState(load=0.5, cores=2, gpus=(GPU,))
FILE = Path(__file__).parent.parent.parent / "docs" / "examples" / "first-run.csv"


def read(text: str) -> Health:
    return loads(Health, text, "health.json", 1 << 20)


def test_states_are_read_as_they_were_saved() -> None:
    idle = replace(STATE, load=None, gpus=(replace(GPU, sm_mhz=None, throttles=()),))
    now = machine_state()
    for one in (Health(before=STATE, after=idle), Health(before=now, after=now)):
        assert read(dumps(one).decode()) == one


@pytest.mark.parametrize("name", ["before", "after"])
@pytest.mark.parametrize(
    "change",
    [
        {"load": "high"},
        {"cores": True},
        {"gpus": {}},
        {"gpus": [1]},
        {"gpus": [{"index": 0}]},
        {"gpus": [{"index": 0, "name": "", "throttles": [], "colour": 1}]},
    ],
)
def test_other_texts_are_refused(name: str, change: dict[str, object]) -> None:
    data = json.loads(dumps(Health(before=STATE, after=STATE)))
    data[name] |= change
    with pytest.raises(UsageError, match=rf"health.json.{name}"):
        read(json.dumps(data))
    for text in ("", "[]", "{}", "null", '{"before": 1, "after": 2}'):
        with pytest.raises(UsageError):
            read(text)


def test_the_page_shows_them() -> None:
    shown = page(replace(load(FILE), health=Health(before=STATE, after=STATE)))
    assert "Load before 0.5, after 0.5, on 2 cores." in shown
    assert "NVIDIA &lt;H200&gt;" in shown and "power-cap" in shown and "1980 of 1980" in shown
    assert "The machine" not in page(load(FILE))
