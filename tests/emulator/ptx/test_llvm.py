"""What LLVM's NVPTX back end writes of hand-made LLVM text, run and compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorir.codegen import cuda
from tensorir.codegen.worker import ptx_of
from tensorir.emulator.ptx import run
from tests.emulator.ptx.kernels import right
from tests.emulator.ptx.test_tensor import from_accumulators

TID = (
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\ndeclare i32 @llvm.nvvm.read.ptx.sreg.laneid()\n"
)
FULL = "i32 -1"
LOAD = "llvm.nvvm.ldmatrix.sync.aligned.m8n8"


def ptx(body: str, parameters: str, more: str = "", cpu: str = "sm_90") -> str:
    """The PTX of a kernel; its thread is %t, and its value as i64 %t64."""
    text = f"""{TID}{more}
define ptx_kernel void @k({parameters}) {{
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %t64 = zext i32 %t to i64
{body}
}}
"""
    target = cuda.target(f"emulator:{cpu}")
    return ptx_of(cuda.module(text, target), target)


def at(name: str, kind: str, given: str, index: str = "%t64", space: str = "1") -> str:
    return f"  %{name} = getelementptr {kind}, ptr addrspace({space}) {given}, i64 {index}\n"


A, C = "ptr addrspace(1) align 16 %A", "ptr addrspace(1) align 16 %C"


def unary(kind: str, code: str, more: str = "") -> str:
    """C[t] = code of %a."""
    body = at("pa", kind, "%A") + at("pc", kind, "%C")
    body += f"  %a = load {kind}, ptr addrspace(1) %pa\n{code}\n"
    return ptx(body + f"  store {kind} %c, ptr addrspace(1) %pc\n  ret void", f"{A}, {C}", more)


def called(text: str, a: np.ndarray[Any, Any], out: Any, block: int) -> Any:
    c = np.zeros_like(out)
    right(text, block=block, args=[a, c], seeds=3)
    return c


def test_wide_integers() -> None:
    """128 bits: carries, products and shifts in words of 64."""
    a = np.random.default_rng(1).integers(0, 1 << 63, (32, 2)).astype(np.uint64)
    code = """  %b = add i128 %a, 987654321987654321987654321
  %m = mul i128 %b, 1234567890123456789012345
  %s = lshr i128 %m, 37
  %n = sub i128 %s, 98765432198765432198765432
  %c = xor i128 %n, %m"""
    found = called(unary("i128", code), a, a, 32)
    mask = (1 << 128) - 1
    for k in range(32):
        v = int(a[k, 0]) | int(a[k, 1]) << 64
        m = (v + 987654321987654321987654321) * 1234567890123456789012345 & mask
        wanted = ((m >> 37) - 98765432198765432198765432 & mask) ^ m
        assert int(found[k, 0]) | int(found[k, 1]) << 64 == wanted


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integer_code(bits: int) -> None:
    kind = f"i{bits}"
    a = np.random.default_rng(bits).integers(0, 1 << min(bits, 62), 64).astype(f"u{bits // 8}")
    more = f"declare {kind} @llvm.ctlz.{kind}({kind}, i1)\ndeclare {kind} @llvm.fshl.{kind}" \
           f"({kind}, {kind}, {kind})\ndeclare {kind} @llvm.bitreverse.{kind}({kind})\n" \
           f"declare {kind} @llvm.ctpop.{kind}({kind})\n" \
           f"declare {kind} @llvm.uadd.sat.{kind}({kind}, {kind})\n"  # fmt: skip
    code = f"""  %q = udiv {kind} %a, 7
  %r = srem {kind} %a, 11
  %z = call {kind} @llvm.ctlz.{kind}({kind} %a, i1 false)
  %p = call {kind} @llvm.ctpop.{kind}({kind} %a)
  %f = call {kind} @llvm.fshl.{kind}({kind} %a, {kind} %q, {kind} 5)
  %v = call {kind} @llvm.bitreverse.{kind}({kind} %f)
  %u = call {kind} @llvm.uadd.sat.{kind}({kind} %v, {kind} %a)
  %x = add {kind} %r, %z
  %y = xor {kind} %x, %p
  %c = add {kind} %u, %y"""
    found = called(unary(kind, code, more), a, a, 64)
    top = 1 << bits
    for k, v in enumerate(map(int, a)):
        signed = v - top if v >> (bits - 1) else v
        rest = abs(signed) % 11 * (1 if signed >= 0 else -1)
        funnel = (v << 5 | v // 7 >> (bits - 5)) % top
        turned = int(f"{funnel:0{bits}b}"[::-1], 2)
        added = (rest + bits - v.bit_length()) % top ^ v.bit_count()
        assert int(found[k]) == (min(turned + v, top - 1) + added) % top


def test_half_pairs() -> None:
    a = (np.random.default_rng(1).integers(-64, 64, (32, 2)) / 8).astype(np.float16)
    code = """  %b = fmul <2 x half> %a, <half 0xH3E00, half 0xHC000>
  %d = call <2 x half> @llvm.fma.v2f16(<2 x half> %b, <2 x half> %a, <2 x half> %a)
  %e = call <2 x half> @llvm.maxnum.v2f16(<2 x half> %d, <2 x half> %b)
  %g = fcmp olt <2 x half> %e, %a
  %c = select <2 x i1> %g, <2 x half> %a, <2 x half> %e"""
    more = "declare <2 x half> @llvm.fma.v2f16(<2 x half>, <2 x half>, <2 x half>)\n" \
           "declare <2 x half> @llvm.maxnum.v2f16(<2 x half>, <2 x half>)\n"  # fmt: skip
    text = unary("<2 x half>", code, more)
    assert "f16x2" in text
    b = (a * np.array([1.5, -2], np.float16)).astype(np.float16)
    d = (b.astype(float) * a + a).astype(np.float16)
    e = np.maximum(d, b)
    np.testing.assert_array_equal(called(text, a, a, 32), np.where(e < a, a, e))


def test_conversions() -> None:
    a = (np.random.default_rng(1).integers(-999, 999, 32) / 7).astype(np.float32)
    code = """  %h = fptrunc float %a to half
  %hf = fpext half %h to float
  %b = fptrunc float %a to bfloat
  %bf = fpext bfloat %b to float
  %i = fptosi float %a to i16
  %if = sitofp i16 %i to float
  %l = fptoui float %hf to i64
  %x = fadd float %hf, %bf
  %c = fadd float %x, %if"""
    half = a.astype(np.float16).astype(np.float32)
    bits = a.view(np.uint32)
    bf = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    wanted = (half + bf) + np.trunc(a)
    np.testing.assert_array_equal(called(unary("float", code), a, a, 32), wanted)


def test_a_warp_and_atomics() -> None:
    more = """
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)
declare i32 @llvm.nvvm.redux.sync.add(i32, i32)
declare i32 @llvm.nvvm.match.any.sync.i32(i32, i32)
"""
    body = f"""{at("pa", "i32", "%A")}  %a = load i32, ptr addrspace(1) %pa
  %s = call i32 @llvm.nvvm.shfl.sync.bfly.i32({FULL}, i32 %a, i32 5, i32 31)
  %o = and i32 %a, 1
  %odd = icmp ne i32 %o, 0
  %v = call i32 @llvm.nvvm.vote.ballot.sync({FULL}, i1 %odd)
  %r = call i32 @llvm.nvvm.redux.sync.add(i32 %a, {FULL})
  %m = call i32 @llvm.nvvm.match.any.sync.i32({FULL}, i32 %o)
  %x = xor i32 %s, %v
  %y = xor i32 %x, %r
  %z = xor i32 %y, %m
{at("pc", "i32", "%C")}  store i32 %z, ptr addrspace(1) %pc
  %q = atomicrmw add ptr addrspace(1) %D, i32 %a syncscope("device") monotonic
  %d1 = getelementptr i32, ptr addrspace(1) %D, i64 1
  %w = atomicrmw max ptr addrspace(1) %d1, i32 %a syncscope("device") monotonic
  %d2 = getelementptr i32, ptr addrspace(1) %D, i64 2
  %u = atomicrmw fadd ptr addrspace(1) %d2, float 1.5 syncscope("device") monotonic
  %d3 = getelementptr i32, ptr addrspace(1) %D, i64 3
  %e = cmpxchg ptr addrspace(1) %d3, i32 0, i32 %a syncscope("device") monotonic monotonic
  ret void"""
    text = ptx(body, f"{A}, {C}, ptr addrspace(1) %D", more)
    a = np.random.default_rng(1).integers(1, 1000, 32).astype(np.int32)
    c, d = np.zeros(32, np.int32), np.zeros(4, np.int32)
    run(text, block=32, args=[a, c, d])
    odd = a % 2 == 1
    lanes = np.arange(32, dtype=np.int64)
    ballot = int((odd.astype(np.int64) << lanes).sum())
    same = np.where(odd, ballot, ballot ^ 0xFFFFFFFF)
    wanted = a[np.arange(32) ^ 5].astype(np.int64) ^ ballot ^ int(a.sum()) ^ same
    np.testing.assert_array_equal(c, wanted.astype(np.uint32).view(np.int32))
    assert d[0] == a.sum() and d[1] == a.max() and d[2:3].view(np.float32)[0] == 48
    assert d[3] in a


def test_asynchronous_copies_and_barriers() -> None:
    more = """
@s = internal addrspace(3) global [512 x i32] undef, align 16
declare void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3), ptr addrspace(1))
declare void @llvm.nvvm.cp.async.commit.group()
declare void @llvm.nvvm.cp.async.wait.group(i32 immarg)
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
"""
    body = f"""  %i = shl i64 %t64, 2
{at("ps", "i32", "@s", "%i", "3")}{at("pa", "i32", "%A", "%i")}
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %ps, ptr addrspace(1) %pa)
  call void @llvm.nvvm.cp.async.commit.group()
  call void @llvm.nvvm.cp.async.wait.group(i32 0)
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %m = sub i64 511, %t64
{at("pr", "i32", "@s", "%m", "3")}  %v = load i32, ptr addrspace(3) %pr
{at("pc", "i32", "%C")}  store i32 %v, ptr addrspace(1) %pc
  ret void"""
    text = ptx(body, f"{A}, {C}", more)
    assert "cp.async.cg" in text and "bar" in text
    a = np.random.default_rng(1).integers(0, 99, 512).astype(np.int32)
    found = called(text, a, np.zeros(128, np.int32), 128)
    np.testing.assert_array_equal(found, a[:-129:-1])


def test_tensor_cores() -> None:
    more = """
@a = internal addrspace(3) global [256 x half] undef, align 16
@b = internal addrspace(3) global [128 x half] undef, align 16
declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3))
declare { i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.trans.b16.p3(ptr addrspace(3))
declare { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.f32.f32(<2 x half>,
  <2 x half>, <2 x half>, <2 x half>, <2 x half>, <2 x half>, float, float, float, float)
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
"""
    parts = "".join(
        f"  %a{k} = extractvalue {{ i32, i32, i32, i32 }} %am, {k}\n"
        f"  %fa{k} = bitcast i32 %a{k} to <2 x half>\n"
        for k in range(4)
    ) + "".join(
        f"  %b{k} = extractvalue {{ i32, i32 }} %bm, {k}\n"
        f"  %fb{k} = bitcast i32 %b{k} to <2 x half>\n"
        for k in range(2)
    )
    stores = "".join(
        f"  %d{k} = extractvalue {{ float, float, float, float }} %d, {k}\n"
        f"  %j{k} = add i64 %t64, {32 * k}\n{at(f'pc{k}', 'float', '%C', f'%j{k}')}"
        f"  store float %d{k}, ptr addrspace(1) %pc{k}\n"
        for k in range(4)
    )
    f = ", ".join(f"<2 x half> %f{n}" for n in ("a0", "a1", "a2", "a3", "b0", "b1"))
    body = f"""  %i = shl i64 %t64, 3
  %h = shl i64 %t64, 2
{at("ga", "half", "%A", "%i")}{at("sa", "half", "@a", "%i", "3")}
  %va = load <8 x half>, ptr addrspace(1) %ga, align 16
  store <8 x half> %va, ptr addrspace(3) %sa, align 16
{at("gb", "half", "%B", "%h")}{at("sb", "half", "@b", "%h", "3")}
  %vb = load <4 x half>, ptr addrspace(1) %gb, align 8
  store <4 x half> %vb, ptr addrspace(3) %sb, align 8
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %row = and i64 %t64, 15
  %ra = shl i64 %row, 4
  %half = lshr i64 %t64, 4
  %col = shl i64 %half, 3
  %oa = add i64 %ra, %col
  %ob = shl i64 %row, 3
{at("la", "half", "@a", "%oa", "3")}{at("lb", "half", "@b", "%ob", "3")}
  %am = call {{ i32, i32, i32, i32 }} @{LOAD}.x4.b16.p3(ptr addrspace(3) %la)
  %bm = call {{ i32, i32 }} @{LOAD}.x2.trans.b16.p3(ptr addrspace(3) %lb)
{parts}
  %d = call {{ float, float, float, float }} @llvm.nvvm.mma.m16n8k16.row.col.f32.f32({f},
    float 1.0, float 1.0, float 1.0, float 1.0)
{stores}  ret void"""
    text = ptx(body, f"{A}, ptr addrspace(1) align 16 %B, {C}", more)
    assert "ldmatrix" in text and "mma.sync" in text
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-9, 9, s).astype(np.float16) for s in ((16, 16), (16, 8)))
    c = np.zeros((4, 32), np.float32)
    right(text, block=32, args=[a, b, c], seeds=3)
    found = from_accumulators(list(c), np.float32)
    np.testing.assert_array_equal(found, a.astype(np.float32) @ b.astype(np.float32) + 1)


def test_arrays_of_a_thread() -> None:
    """An index that is not constant keeps an array in local memory."""
    body = f"""  %l = alloca [8 x i32], align 4
{at("pa", "i32", "%A")}  %a = load i32, ptr addrspace(1) %pa
  br label %fill
fill:
  %k = phi i64 [0, %entry], [%n, %fill]
  %p = getelementptr [8 x i32], ptr %l, i64 0, i64 %k
  %k32 = trunc i64 %k to i32
  %v = mul i32 %k32, %a
  store i32 %v, ptr %p
  %n = add i64 %k, 1
  %go = icmp ult i64 %n, 8
  br i1 %go, label %fill, label %read
read:
  %x = and i64 %t64, 7
  %q = getelementptr [8 x i32], ptr %l, i64 0, i64 %x
  %w = load i32, ptr %q
{at("pc", "i32", "%C")}  store i32 %w, ptr addrspace(1) %pc
  ret void"""
    text = ptx(body, f"{A}, {C}")
    assert "__local_depot" in text
    a = np.arange(1, 65, dtype=np.int32)
    np.testing.assert_array_equal(called(text, a, a, 64), a * (np.arange(64) % 8))
