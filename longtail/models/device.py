"""Devices that networks run on."""

from __future__ import annotations

import torch

from longtail.core.errors import SettingError


def device_for(wanted: str | None) -> torch.device:
    """The device of that name; a GPU where there is one, else the CPU, for None."""
    if wanted is None:
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise SettingError(f"{wanted!r} came as the device; wanted cpu or cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingError(f"There is no GPU for the device {wanted!r} that torch could use; type cpu, or leave it out.")
    return device
