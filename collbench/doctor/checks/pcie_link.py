"""Whether PCIe links of GPUs and NICs run at the generation and width that both ends can."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told


def find(evidence: Evidence) -> Iterable[Finding]:
    yield from _widths(evidence)
    yield from _generations(evidence)


def _widths(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        gpus = {gpu.address: gpu for gpu in host.gpus}
        nics = {nic.address: nic.name for nic in host.nics}
        by_address = {device.address: device for device in host.pci}
        for device in host.pci:
            width, most = device.current_link_width, device.max_link_width
            above = by_address.get(_parent(device.path))
            if above is not None and above.max_link_width:
                most = min(most or above.max_link_width, above.max_link_width)
            gpu = gpus.get(device.address)
            if gpu is not None and gpu.pcie_width:
                width, most = gpu.pcie_width, gpu.pcie_max_width or most
            if not width or not most or width >= most:
                continue
            what = (
                f"GPU {gpu.index}"
                if gpu is not None
                else nics.get(device.address, f"bridge {device.address}")
            )
            if gpu is None and device.address not in nics:
                below = [one for one in host.pci if f"/{device.address}/" in f"/{one.path}/"]
                # the link that it reports is the one below it, which reports too
                if len(below) > 1:
                    continue
            yield told(
                "pcie-width",
                evidence.on(what, host),
                f"its PCIe link has {width} lanes of {most} ({device.address})",
                more=f" {width} lanes of {most} carry {100 * width // most} % of its rate.",
            )


def _generations(evidence: Evidence) -> Iterable[Finding]:
    """Of GPUs under load: at rest a lower one saves power."""
    for name, gpu in evidence.gpus(evidence.loaded):
        generation, most = gpu.pcie_generation, gpu.pcie_max_generation
        if generation and most and generation < most:
            yield told(
                "pcie-generation",
                name,
                f"its PCIe link runs at generation {generation} of {most} under load",
            )


def _parent(path: str) -> str:
    """The address of the function above, of a path in sysfs."""
    parts = path.split("/")
    return parts[-2] if len(parts) > 1 else ""
