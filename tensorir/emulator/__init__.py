"""Floor 6: meanings that share no code with the compiler, to check it against.

`reference` computes a declaration in numpy, stage by stage and element by element; it knows
expressions (`ir`) and nothing of programs, schedules or loops. `validate` enumerates lowered loops
in plain Python and compares them with the declaration's own order. Entry points:
`reference.evaluate` and `validate.require_valid`.
"""
