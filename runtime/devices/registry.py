"""Which devices are there, by name?"""

from collections.abc import Callable, Mapping

from runtime.devices.base import Device
from runtime.devices.cpu import CpuDevice
from runtime.devices.cuda import CudaDevice
from runtime.errors import InvalidConfig


def _open_cpu(num_threads: int) -> Device:
    return CpuDevice(num_threads=num_threads)


def _open_cuda(num_threads: int) -> Device:
    del num_threads
    return CudaDevice()


DEVICES: Mapping[str, Callable[[int], Device]] = {
    "cpu": _open_cpu,
    "cuda": _open_cuda,
}


def open_device(name: str, *, num_threads: int = 0) -> Device:
    """The named device; ``num_threads`` 0 lets it choose. Raises: InvalidConfig, unknown name."""
    if name not in DEVICES:
        raise InvalidConfig(f"device {name!r} is not one of {sorted(DEVICES)}")
    return DEVICES[name](num_threads)
