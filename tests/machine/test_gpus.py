"""What NVML says, through the real binding and a library that is made up: its four GPUs are a
virtual machine's.
"""

import pickle
import sys
from collections.abc import Iterator
from ctypes import Array, c_uint
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from collbench.core.errors import UnavailableError
from collbench.machine.gpus import Conditions, Gpu, GpuReading, conditions, disturbances, visible
from tests.support.fake_nvml import FakeGpu, FakeNvml, driver, put
from tests.support.runs import said_by
from tests.support.tables import cells_of

UUIDS = tuple(
    f"GPU-{start}-5a07-4b39-aa58-8205e02aeda7"
    for start in ("fe6bef6b", "fe6b0000", "0123abcd", "77777777")
)


class Fake(FakeNvml):
    """With clocks, reasons for them, power and processes, which all its GPUs share."""

    def __init__(self) -> None:
        super().__init__(
            [
                FakeGpu(
                    name="NVIDIA H200", address=f"0000:1a:{6 + place:02x}.0", arch=90, uuid=uuid
                )
                for place, uuid in enumerate(UUIDS)
            ]
        )
        self.clocks = {pynvml.NVML_CLOCK_SM: 1980}
        self.bits = 0
        self.pids: list[int] = []

    def _nvmlDeviceGetHandleByUUID(self, uuid: Any, out: Any) -> int:
        text = uuid.value.decode()
        if text not in UUIDS:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        put(out._obj, UUIDS.index(text))
        return 0

    def _nvmlDeviceGetClockInfo(self, handle: Any, clock: c_uint, out: Any) -> None:
        out._obj.value = self.clocks[clock.value]

    def _nvmlDeviceGetMaxClockInfo(self, handle: Any, clock: c_uint, out: Any) -> None:
        out._obj.value = 1980

    def _nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, out: Any) -> None:
        out._obj.value = self.bits

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, out: Any) -> None:
        out._obj.value = self.bits

    def _nvmlDeviceGetComputeRunningProcesses_v3(
        self, handle: Any, count: Any, out: Array[Any] | None
    ) -> int:
        room, count._obj.value = count._obj.value, len(self.pids)
        if room < len(self.pids) or out is None:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE) if self.pids else 0
        for entry, pid in zip(out, self.pids, strict=False):
            entry.pid = pid
        return 0


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with driver(fake := Fake()):
        yield fake


def indices() -> list[int]:
    return [gpu.index for gpu in visible()]


def at(
    bits: int | None = 0, sm_mhz: int | None = 1980, pids: frozenset[int] | None = frozenset()
) -> Conditions:
    """Two GPUs: a healthy one, and one with these readings."""
    healthy = GpuReading(
        uuid=UUIDS[0], sm_mhz=1980, sm_max_mhz=1980, throttle_bits=0, foreign_pids=frozenset()
    )
    return Conditions(
        readings=(
            healthy,
            replace(healthy, uuid=UUIDS[1], throttle_bits=bits, sm_mhz=sm_mhz, foreign_pids=pids),
        )
    )


def test_four_gpus_by_pci_address(nvml: Fake) -> None:
    assert [gpu.uuid for gpu in visible()] == list(UUIDS)
    assert visible()[3] == Gpu(index=3, uuid=UUIDS[3], name="NVIDIA H200")


@pytest.mark.parametrize(("devices", "shown"), cells_of(__file__, "visible-devices.tsv"))
def test_cuda_visible_devices(
    nvml: Fake, monkeypatch: pytest.MonkeyPatch, devices: str, shown: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices.format(*UUIDS))
    assert indices() == [int(one) for one in shown.split()]


def test_a_gpu_that_does_not_answer_has_no_number(
    nvml: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.refused = {1: pynvml.NVML_ERROR_NO_PERMISSION}
    assert indices() == [0, 2, 3]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert indices() == [2]


@pytest.mark.parametrize("error", ["LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "NOT_FOUND"])
def test_without_a_driver_there_are_no_gpus(nvml: Fake, error: str) -> None:
    nvml.errors["nvmlInitWithFlags"] = getattr(pynvml, f"NVML_ERROR_{error}")
    assert visible() == ()
    assert conditions(UUIDS[:2], [1]) == Conditions(
        readings=(GpuReading(uuid=UUIDS[0]), GpuReading(uuid=UUIDS[1]))
    )


def test_without_a_library_there_are_no_gpus() -> None:
    with driver(None):
        assert visible() == ()
        assert conditions(UUIDS[:1], []).readings == (GpuReading(uuid=UUIDS[0]),)


def test_a_driver_that_fails_is_no_lack_of_gpus(nvml: Fake) -> None:
    nvml.errors["nvmlInitWithFlags"] = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    with pytest.raises(UnavailableError, match=r"does not start.*mismatch"):
        visible()
    assert conditions(UUIDS[:1], []).readings == (GpuReading(uuid=UUIDS[0]),)


def test_conditions_in_the_order_asked_for(nvml: Fake) -> None:
    nvml.bits, nvml.pids = 0x4, [11, 12, 13]
    now = conditions([UUIDS[2], UUIDS[0]], own_pids=[11, 13])
    first = GpuReading(
        uuid=UUIDS[2], sm_mhz=1980, sm_max_mhz=1980, throttle_bits=0x4, foreign_pids=frozenset({12})
    )
    assert now.readings == (first, replace(first, uuid=UUIDS[0]))
    assert pickle.loads(pickle.dumps(now)) == now  # ranks send theirs to each other


def test_processes_without_an_id_are_nobody(nvml: Fake) -> None:
    nvml.pids = [0, 0xFFFFFFFF]
    assert conditions(UUIDS[:1], []).readings[0].foreign_pids == frozenset()


def test_an_unknown_uuid_is_a_gpu_without_readings(nvml: Fake) -> None:
    assert conditions(["GPU-none", UUIDS[0]], []).readings[0] == GpuReading(uuid="GPU-none")


QUERIES = {
    "nvmlDeviceGetClockInfo": {"sm_mhz"},
    "nvmlDeviceGetMaxClockInfo": {"sm_max_mhz"},
    "nvmlDeviceGetCurrentClocks": {"throttle_bits"},
    "nvmlDeviceGetComputeRunningProcesses": {"foreign_pids"},
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "NO_PERMISSION", "GPU_IS_LOST", None])
def test_what_nvml_does_not_tell_is_none(nvml: Fake, query: str, error: str | None) -> None:
    """None among the errors is a function that the driver lacks."""
    names = {name[1:] for name in Fake.__dict__ if name.startswith(f"_{query}")}
    if error is None:
        nvml.missing = names
    else:
        nvml.errors = dict.fromkeys(names, getattr(pynvml, f"NVML_ERROR_{error}"))
    reading = conditions(UUIDS[:1], []).readings[0]
    assert {
        name for name in GpuReading.__dataclass_fields__ if getattr(reading, name) is None
    } == QUERIES[query]
    assert disturbances(conditions(UUIDS[:1], []), conditions(UUIDS[:1], [])) == ()


def test_older_names_of_older_drivers(nvml: Fake) -> None:
    nvml.missing, nvml.bits = {"nvmlDeviceGetCurrentClocksEventReasons"}, 0x40
    reading = conditions(UUIDS[:1], []).readings[0]
    assert reading.throttle_bits == 0x40


def test_a_second_look_asks_only_for_what_changes(nvml: Fake) -> None:
    conditions(UUIDS, [])
    nvml.calls.clear()
    conditions(UUIDS, [])
    assert len(nvml.calls) == 3 * len(UUIDS)
    assert not {
        "nvmlInitWithFlags",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetMaxClockInfo",
    } & set(nvml.calls)


def test_a_healthy_machine_gets_no_notes(nvml: Fake) -> None:
    nvml.pids, nvml.bits, nvml.clocks[pynvml.NVML_CLOCK_SM] = [7], 0x1, 345
    before = conditions(UUIDS, [7])
    nvml.bits, nvml.clocks[pynvml.NVML_CLOCK_SM] = 0, 1980
    assert disturbances(before, conditions(UUIDS, [7])) == ()


@pytest.mark.parametrize(("bits", "sm_mhz", "notes"), cells_of(__file__, "throttles.tsv"))
def test_notes_of_throttle_bits_and_clocks(bits: str, sm_mhz: str, notes: str) -> None:
    odd = at(int(bits, 0) if bits else None, int(sm_mhz) if sm_mhz else None)
    assert disturbances(at(), odd) == tuple(notes.split())
    assert disturbances(odd, at()) == tuple(notes.replace("clocks-low", "").split())


def test_notes_come_once_in_a_fixed_order_and_fit_a_cell() -> None:
    neighbour = frozenset({99})
    for before, after in ((at(pids=neighbour), at(0x84, 345)), (at(0x80), at(0x4, 345, neighbour))):
        notes = disturbances(before, after)
        assert notes == (
            "throttled:power-cap",
            "throttled:power-brake",
            "clocks-low",
            "other-processes",
        )
    assert not any(set(note) & set(' ,;"') for note in notes)


def test_importing_it_imports_no_binding() -> None:
    code = "import sys, collbench.machine.gpus; print('pynvml' in sys.modules)"
    assert said_by([sys.executable, "-c", code]).stdout == "False\n"
