"""Schedules for CUDA GPUs, run and checked by the emulator where there is none."""

from __future__ import annotations

from schedules.cuda.attention import attention
from schedules.cuda.elementwise import elementwise
from schedules.cuda.matmul import matmul
from schedules.cuda.reduce import reduce
from schedules.cuda.rows import rows
from schedules.cuda.transpose import transpose

__all__ = ["attention", "elementwise", "matmul", "reduce", "rows", "transpose"]
