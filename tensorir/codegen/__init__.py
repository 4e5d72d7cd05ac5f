"""Floor 6: from loops to code.

`emit` writes LLVM text for lowered loops, `cpu` knows the processors, and `llvm`, the only
importer of llvmlite, turns text into objects and links them. `source.KernelSource` is what
comes out: text, and everything that a call must know.
"""
