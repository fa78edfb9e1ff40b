"""Counters that rise between rest and the end of a load."""

from dataclasses import replace

from collbench.machine.discovery import Recording
from tests.doctor.plants.nvlinks import with_links
from tests.support.evidence import Plant, machine, under_load, with_gpu


def with_port_errors(recording: Recording, count: int) -> Recording:
    """The third NIC has lost packets."""
    nics = list(recording.nics)
    ports = tuple(replace(one, counters={"packet_seq_err": count}) for one in nics[2].ports)
    nics[2] = replace(nics[2], ports=ports)
    return replace(recording, nics=tuple(nics))


def with_interface_errors(recording: Recording, count: int) -> Recording:
    """The last interface has received corrupt frames."""
    last = replace(recording.nics[-1], counters={"rx_crc_errors": count, "rx_errors": count})
    return replace(recording, nics=(*recording.nics[:-1], last))


def with_memory_errors(recording: Recording, count: int) -> Recording:
    """The third GPU has two wrong bits in a word."""
    return with_gpu(recording, 2, counters={"ecc_dbe_vol_total": count})


PLANTS = [
    Plant(
        "NVLink sends again",
        under_load(
            machine("hgx_h100"), after=lambda one: with_links(one, 6, 11, replay=40, crc=52)
        ),
    ).finds("GPU 6", "NVLink 11 replay from 0 to 40, NVLink 11 crc from 0 to 52"),
    Plant(
        "NVLink trained again",
        under_load(machine("hgx_h100"), after=lambda one: with_links(one, 1, 0, recovery=1)),
    ).finds("GPU 1", "NVLink 0 recovery from 0 to 1", "fault"),
    Plant(
        "PCIe replays, while others stand still",
        under_load(
            machine("pcie_box"),
            after=lambda one: with_gpu(
                one, 4, counters={"pcie_replay_counter": 90, "pcie_count_receiver_error": 4}
            ),
        ),
    ).finds("GPU 4", "rose under our load: pcie_replay_counter from 3 to 90"),
    Plant(
        "memory that no code corrects",
        under_load(
            with_memory_errors(machine("pcie_box"), 0), after=lambda one: with_memory_errors(one, 1)
        ),
    ).finds("GPU 2", "ecc_dbe_vol_total from 0 to 1", "fault"),
    Plant(
        "lost packets",
        under_load(
            with_port_errors(machine("hgx_h100"), 5), after=lambda one: with_port_errors(one, 17)
        ),
    ).finds("mlx5_2", "port 1 packet_seq_err from 5 to 17"),
    Plant(
        "corrupt frames",
        under_load(
            with_interface_errors(machine("pcie_box"), 0),
            after=lambda one: with_interface_errors(one, 3),
        ),
    ).finds("ens1np0", "rx_crc_errors from 0 to 3"),
]
