"""What the links of described machines allow a ring allreduce, beside what was published of such
machines; no profile knows these figures.

Figures are bus bandwidths in GB/s of large messages without multicast. Sources: NVIDIA/nccl issues
and nccl-tests issues 149, 194, 212, 309 (A100 x8, H100 x8, A100 with NV12 bridges),
ml-engineering's tables (H200, B200), NCCL's own words on DGX-1 and PCIe machines (GTC 2017 and
2018).
"""

import pytest

from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.rings import rings
from collbench.planning.layout import along
from collbench.planning.price.bound import bound
from collbench.schedules.passes import pair_traffic

# (machine, GPUs, published, farthest that the prediction may lie above or below it)
PUBLISHED = [
    ("pcie-4", 4, 10.0, 0.20),
    ("pcie-2x2", 4, 5.0, 0.20),
    ("gn5-8xp100", 8, 5.0, 0.20),
    ("dgx-1", 8, 60.0, 0.07),
    ("dgx-a100", 8, 230.0, 0.05),
    ("hgx-h100", 8, 368.8, 0.02),
    ("hgx-h200", 8, 367.0, 0.02),
    ("h200x4-vm", 4, 363.0, 0.02),
    ("hgx-b200", 8, 682.0, 0.06),
    ("a100-pairs", 2, 208.0, 0.16),
    ("a100-pairs", 3, 20.0, 0.20),
]


@pytest.mark.parametrize(("name", "n", "published", "error"), PUBLISHED)
def test_the_wires_predict_what_was_published(
    name: str, n: int, published: float, error: float
) -> None:
    machine = machine_topology(name)
    gpus = [gpu.id for gpu in machine.gpus[:n]]
    orders = rings(machine, gpus)
    found = bound(machine, gpus, pair_traffic(along("allreduce", "ring", n, 0, orders)))
    assert found is not None
    predicted = found.gbs * 2 * (n - 1) / n
    print(
        f"{name} x{n}: published {published:g}, predicted {predicted:.1f}"
        f" ({predicted / published - 1:+.0%}), {found.limit}"
    )
    assert abs(predicted / published - 1) <= error + 1e-3
