"""Floor 3: schedules, their primitives, their trace, and how refusals are told.

`schedule(tensor)` makes one; each primitive is a method that returns a new one. A primitive is a
function in one of the `*_ops` modules: `loop_ops` and `nest_ops` move loops, `parallel_ops` says
how they run, `placement_ops` and `consumer_ops` where a stage is computed, `memory_ops` what is
kept where, `storage_ops` what arrays share, `reduce_ops` takes reductions apart, `scatter_ops`
makes one write the cell that its index names, `specialize_ops` copies the nest for some sizes.
"""
