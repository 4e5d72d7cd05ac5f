"""Floor F8: what each operator should give, in numpy, and its entry in the registry.

Written to be read, not to be fast. Imported by :mod:`tensorir.ops.registry` when it is asked.
"""

from __future__ import annotations

from tensorir.ops.reference import elementwise, linalg, movement, nn, reduce, windows

for family in (elementwise, linalg, movement, nn, reduce, windows):
    family.register_all()
