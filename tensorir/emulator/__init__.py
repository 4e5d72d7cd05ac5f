"""Floor 6: meanings that share no code with the compiler, to check it against.

`reference` computes a declaration in numpy, stage by stage and element by element. It knows
expressions (`ir`) and nothing of programs, schedules or loops. Entry point: `reference.evaluate`.
"""
