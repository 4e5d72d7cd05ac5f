"""Floor F8: the operators, what they compute.

Each function takes tensors (and fixed parameters) and returns a tensor expression, or a tuple of
them; no schedule is in it. :func:`operator` finds one by name with its numpy reference. Start with
:func:`matmul`.
"""

from __future__ import annotations
