"""Private buffers of kernels: kept between calls, so that no call pays for fresh pages.

A kernel asks `tir_scratch_take(bytes)` for each buffer and returns it with `tir_scratch_give`.
Both are code of ours, compiled once: a table of slots, each owned by whoever sets its flag, without
locks. Memory belongs to one call at a time; more buffers than slots, and very large ones, come from
the system each time. Large ones lie on 2 MiB boundaries and ask for huge pages.
"""

from __future__ import annotations

from functools import cache

from tensorir.codegen import cpu, llvm

SYMBOLS = ("tir_scratch_take", "tir_scratch_give")
SLOTS = 64
# Larger buffers are returned to the system after each call.
MOST_KEPT = 64 << 20
HUGE = 1 << 21
_MADV_HUGEPAGE = 14

# A slot is {flag, size, pointer}. `take` first looks for a free slot that is large enough and no
# more than four times what is asked, then for any free one, whose memory it replaces.
_TEXT = f"""
@slots = internal global [{SLOTS} x {{ i64, i64, ptr }}] zeroinitializer, align 64
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)

define internal ptr @fresh(i64 %bytes) #0 {{
entry:
  %large = icmp uge i64 %bytes, {HUGE}
  br i1 %large, label %huge, label %plain
plain:
  %p = call ptr @aligned_alloc(i64 64, i64 %bytes)
  ret ptr %p
huge:
  %q = call ptr @aligned_alloc(i64 {HUGE}, i64 %bytes)
  %none = icmp eq ptr %q, null
  br i1 %none, label %done, label %advise
advise:
  %r = call i32 @madvise(ptr %q, i64 %bytes, i32 {_MADV_HUGEPAGE})
  br label %done
done:
  ret ptr %q
}}

define ptr @tir_scratch_take(i64 %bytes) #0 {{
entry:
  %most = icmp ugt i64 %bytes, {MOST_KEPT}
  br i1 %most, label %system, label %look
look:
  %i = phi i64 [0, %entry], [%i1, %next]
  %s = getelementptr {{ i64, i64, ptr }}, ptr @slots, i64 %i
  %flag = load atomic i64, ptr %s monotonic, align 8
  %free = icmp eq i64 %flag, 0
  br i1 %free, label %fits, label %next
fits:
  %sp = getelementptr i8, ptr %s, i64 8
  %size = load atomic i64, ptr %sp monotonic, align 8
  %enough = icmp uge i64 %size, %bytes
  %quarter = lshr i64 %size, 2
  %close = icmp ule i64 %quarter, %bytes
  %good = and i1 %enough, %close
  br i1 %good, label %try, label %next
try:
  %x = cmpxchg ptr %s, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %x, 1
  br i1 %mine, label %again, label %next
again:
  %size2 = load atomic i64, ptr %sp monotonic, align 8
  %still = icmp uge i64 %size2, %bytes
  br i1 %still, label %give, label %undo
undo:
  store atomic i64 0, ptr %s release, align 8
  br label %next
give:
  %pp = getelementptr i8, ptr %s, i64 16
  %p = load ptr, ptr %pp
  ret ptr %p
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {SLOTS}
  br i1 %more, label %look, label %any
any:
  %j = phi i64 [0, %next], [%j1, %busy]
  %t = getelementptr {{ i64, i64, ptr }}, ptr @slots, i64 %j
  %y = cmpxchg ptr %t, i64 0, i64 1 acquire monotonic
  %got = extractvalue {{ i64, i1 }} %y, 1
  br i1 %got, label %replace, label %busy
busy:
  %j1 = add i64 %j, 1
  %left = icmp ult i64 %j1, {SLOTS}
  br i1 %left, label %any, label %system
replace:
  %tp = getelementptr i8, ptr %t, i64 16
  %old = load ptr, ptr %tp
  ; not before nothing can take this slot for that of another buffer at the same address
  store atomic ptr null, ptr %tp release, align 8
  call void @free(ptr %old)
  %new = call ptr @fresh(i64 %bytes)
  store atomic ptr %new, ptr %tp release, align 8
  %tsp = getelementptr i8, ptr %t, i64 8
  %failed = icmp eq ptr %new, null
  %known = select i1 %failed, i64 0, i64 %bytes
  store atomic i64 %known, ptr %tsp monotonic, align 8
  br i1 %failed, label %sorry, label %granted
sorry:
  store atomic i64 0, ptr %t release, align 8
  ret ptr null
granted:
  ret ptr %new
system:
  %z = call ptr @fresh(i64 %bytes)
  ret ptr %z
}}

define void @tir_scratch_give(ptr %p) #0 {{
entry:
  %none = icmp eq ptr %p, null
  br i1 %none, label %done, label %look
look:
  %i = phi i64 [0, %entry], [%i1, %next]
  %s = getelementptr {{ i64, i64, ptr }}, ptr @slots, i64 %i
  %flag = load atomic i64, ptr %s monotonic, align 8
  %taken = icmp ne i64 %flag, 0
  br i1 %taken, label %compare, label %next
compare:
  %pp = getelementptr i8, ptr %s, i64 16
  %q = load atomic ptr, ptr %pp acquire, align 8
  %same = icmp eq ptr %q, %p
  br i1 %same, label %release, label %next
release:
  store atomic i64 0, ptr %s release, align 8
  ret void
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {SLOTS}
  br i1 %more, label %look, label %foreign
foreign:
  call void @free(ptr %p)
  ret void
done:
  ret void
}}
"""


@cache
def symbols() -> llvm.Library:
    """The addresses of `SYMBOLS`; keeps the code alive."""
    from tensorir.runtime.cpu_device import address

    here = cpu.target("native")
    outside = {name: address(name) for name in ("aligned_alloc", "free", "madvise")}
    return llvm.link(llvm.compile_object(cpu.module(_TEXT, here), here), SYMBOLS, outside)
