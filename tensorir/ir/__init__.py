"""Floor 1: expressions, tensors, statements and loops, and what prints and checks them.

Nodes (`dtype`, `expr`, `affine`, `tensor`, `statement`, `stmt`) only hold fields; jobs on them have
files of their own: `build` makes expressions by numpy's type rules, `numerics` is what each
operation computes, `index` finds affine forms, `language`, `reductions` and `maths` are what users
write, `printer` is text. Start with `language`: it declares.
"""

from tensorir.ir import printer

__all__ = ["printer"]
