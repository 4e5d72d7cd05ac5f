"""Placeholders for the shapes and arrays that a user gives in place of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tensorir.ir.dtype import DType
from tensorir.ir.dtype import dtype as as_dtype
from tensorir.ir.expr import Expr
from tensorir.ir.language import placeholder
from tensorir.ir.tensor import Tensor
from tensorir.support.diagnostics import Message, caller
from tensorir.support.errors import ArgumentError, ArgumentTypeError, TensorIRError
from tensorir.support.names import fresh


def fail(
    headline: str,
    why: str = "",
    tries: Sequence[tuple[str, str]] = (),
    cls: type[TensorIRError] = ArgumentError,
) -> NoReturn:
    """Raise an error of `build`, with the user's line."""
    raise Message(f"build: {headline}", caller(), why=why, tries=tries).error(cls)


class Inputs:
    """The placeholders of one call of `build`.

    Attributes
    ----------
    made
        Those made so far, in the order of the call.
    """

    def __init__(self, op: str, names: Sequence[str], dtypes: Any) -> None:
        self.op = op
        self.made: list[Tensor] = []
        self._names = names
        several = isinstance(dtypes, list | tuple)
        self._each = [as_dtype(d) for d in dtypes] if several else None
        self._one = as_dtype("float32" if dtypes is None or several else dtypes)

    def positional(self, k: int, given: Any) -> Any:
        """A placeholder, a list of them, or what goes to the function as it is."""
        name = self._names[k] if k < len(self._names) else f"x{k}"
        if isinstance(given, str):
            return given
        if isinstance(given, list) and any(isinstance(x, tuple) or _array(x) for x in given):
            return [self._input(f"{name}_{n}", x) for n, x in enumerate(given)]
        return self._input(name, given)

    def keyword(self, name: str, given: Any) -> Any:
        """A placeholder for an array, anything else as it is."""
        return self._input(name, given) if _array(given) else given

    def finish(self) -> None:
        """Refuse types that are not those of inputs."""
        plural = "" if len(self.made) == 1 else "s"
        if self._each is not None and len(self._each) != len(self.made):
            fail(
                f"{len(self._each)} dtypes for {len(self.made)} input{plural} of {self.op}",
                tries=[('dtypes="float32"', "is the type of all of them")],
            )

    def _input(self, name: str, given: Any) -> Tensor:
        k = len(self.made)
        d: DType = self._one
        if self._each is not None and k < len(self._each):
            d = self._each[k]
        shape: Any = given
        if _array(given):
            # torch writes its types as torch.float32
            d = as_dtype(str(given.dtype).rpartition(".")[2])
            shape = tuple(given.shape)
        elif not isinstance(given, tuple | list | Expr | int | np.integer) or given is True:
            fail(
                f"input {k} of {self.op} is {type(given).__name__} {given!r:.60}",
                why="an input is given by its shape, or by an array that has it; whatever else an "
                "operator takes goes by keyword.",
                tries=[(f"schedules.build({self.op!r}, (64, 32))", "a shape")],
                cls=ArgumentTypeError,
            )
        t = placeholder(shape, d, name=fresh(name, {m.name for m in self.made}))
        self.made.append(t)
        return t


def _array(x: object) -> bool:
    """Whether `x` is an array or a tensor of numbers; numpy's scalars are numbers."""
    return hasattr(x, "dtype") and hasattr(x, "shape") and not isinstance(x, np.generic | Expr)
