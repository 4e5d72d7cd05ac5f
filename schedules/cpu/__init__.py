"""Hand schedules for processors with vector units."""

from __future__ import annotations

from schedules.cpu.attention import attention
from schedules.cpu.blur import blur
from schedules.cpu.conv import conv
from schedules.cpu.depthwise import depthwise
from schedules.cpu.elementwise import elementwise
from schedules.cpu.gemv import gemv
from schedules.cpu.matmul import matmul
from schedules.cpu.matmul_lowp import matmul_lowp
from schedules.cpu.pool import pool
from schedules.cpu.reduce import reduce
from schedules.cpu.rows import rows
from schedules.cpu.scatter import scatter
from schedules.cpu.small import small_matmul
from schedules.cpu.transpose import transpose

__all__ = [
    "attention",
    "blur",
    "conv",
    "depthwise",
    "elementwise",
    "gemv",
    "matmul",
    "matmul_lowp",
    "pool",
    "reduce",
    "rows",
    "scatter",
    "small_matmul",
    "transpose",
]
