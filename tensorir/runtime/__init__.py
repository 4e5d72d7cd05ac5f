"""Floor 7: kernels that can be called.

`build` makes a `Kernel` from a schedule; `kernel` is what it is. A call goes through `call`,
a wrapper of machine code that checks arrays in nanoseconds, and through `buffer` where an
argument is not a plain numpy array or is wrong. `threads` finds the OpenMP runtime.
"""
