"""Hand schedules for processors with vector units."""

from __future__ import annotations

from schedules.cpu.blur import blur
from schedules.cpu.matmul import matmul
from schedules.cpu.transpose import transpose

__all__ = ["blur", "matmul", "transpose"]
