"""Where arrays live: the devices of DLPack, by code and by name."""

from __future__ import annotations

from typing import Any

# https://dmlc.github.io/dlpack/latest/c_api.html#c.DLDeviceType
_NAMES = {1: "cpu", 2: "cuda", 3: "cuda_host", 7: "vulkan", 8: "metal", 10: "rocm", 11: "rocm_host",
          13: "cuda_managed", 14: "oneapi"}  # fmt: skip
_ON_CPU = ("cpu", "cuda_host", "rocm_host")


def device_name(array: Any) -> str:
    """The device on which an array with `__dlpack_device__` lives: "cpu", "cuda:0".

    Examples
    --------
    >>> import numpy as np
    >>> device_name(np.zeros(3))
    'cpu'
    """
    code, number = array.__dlpack_device__()
    name = _NAMES.get(int(code), f"device {int(code)}")
    return name if name in _ON_CPU else f"{name}:{int(number)}"


def on_cpu(name: str) -> bool:
    """Whether memory of the device called `name` can be read by this processor."""
    return name in _ON_CPU
