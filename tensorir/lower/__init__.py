"""From a program to loops that can be turned into code (floor 5).

A program says in which order its instances run; here that becomes `For`, `If` and `Run` nodes
with exact bounds, storage for temporaries, guards only where they are needed, and copies of the
smallest nests for full and partial tiles. Entry points: :func:`tensorir.lower.pipeline.lower` and
:func:`tensorir.lower.pipeline.loops_only`.
"""
