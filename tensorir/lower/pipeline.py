"""From a program to the loops that the emitters read: the passes in order.

What an emitter may rely on (also checked by `lower.verify`):

Nodes
    `lower` returns `For`, `If`, `Block`, `Run`, `Alloc` of `ir.stmt`. Loop axes are the axes of
    `For` nodes; sizes are `Var`. An axis may head several sibling loops (a split prefix and
    suffix, two versions), never two nested ones.
For
    `kind` is "serial", "parallel", "unroll" or "vectorize" ("bind" is kept for other targets).
    `unroll` and `vectorize` always have `extent` (an int >= 1), run from 0, and are to be
    replicated; all other loops run from max(lower) to min(upper) inclusive (`hull`: from
    min(lower) to max(upper)); they may be empty. `extent` is also set for a serial or parallel
    loop of constant extent from 0. `vectorize` has `width`; `extent` is a multiple of it: the
    loop is extent/width vectors, all unrolled, lane axis value = j + lane. There is never a
    vector loop inside a vector loop; serial and unrolled loops may be inside one, and their bounds
    never depend on the lanes. A parallel loop may stand inside another (run the inner serially).
If
    Its facts ("ge", e): e >= 0, ("eq", e): e == 0 never depend on an axis of an enclosing vector
    loop; they may depend on unrolled axes. `other` may be None.
Run
    `args` give the statement's iterators over loop axes and sizes. `conds` and `read_conds` are
    e >= 0, may depend on lanes (a mask) and on unrolled axes, may hold floor atoms. An equality
    comes as two. Reads' own guards (`Access.guard`) are over the statement's iterators: substitute
    `args`. `corner` is what rules R1 and R2 of loads need: only if it is True may a load ignore
    conds on axes that its address does not use, or read row 0 instead of a row outside.
Storage
    One for each temporary array (`Lowered.storages`), and each is the `buffer` of at least one
    `Alloc`; of several where versions duplicate a nest with the parallel loop around it. `Alloc`
    stands at the top, or directly in the body of the innermost parallel loop for whose iterations
    the buffer is private; it may be allocated on entry of that function: contents never survive
    from one point of `outside` to the next. `scope` is "register" (then `register` is 0 or the
    width, and every index in it is constant once unrolled), "stack" (constant size, at most 16
    KiB) or "arena". `shape` is the storage shape, row-major, lanes of vector axes innermost.
    What cells beyond the footprint hold does not matter; a masked load may write zeros there.
Cells
    `Lowered.cell(access, args)` gives the storage index of an access, simplified, one Lin for
    each dimension of `shape` of its array or Storage (lanes included), or None where an index is
    a May (then subtract nothing: such arrays have origin 0 and no layout; index them as declared).
    `Lowered.ranges[axis]` is the inclusive constant maximum of a loop axis from 0, if it has one.
"""

from __future__ import annotations
