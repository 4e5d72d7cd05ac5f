"""How: the library's schedules, written with the public primitives alone (floor 10).

`build("softmax", shape)` gives a kernel, `schedule_for(tensor)` picks a schedule; `schedules.cpu`
holds those that were written by hand, each a function to read, to call with other parameters, or
to start from.
"""

from __future__ import annotations

import schedules.cpu
import schedules.cuda  # noqa: F401  (both fill the registry)
from schedules.build import build
from schedules.params import Param
from schedules.registry import schedule_for

__all__ = ["Param", "build", "schedule_for"]
