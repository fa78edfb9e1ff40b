"""Element types and reductions: names, widths, and how NumPy computes with them. NumPy is imported
only when one is used.

A step accumulates 16-bit and 8-bit floats in float32 and rounds once, at its end; every other type
accumulates in itself. Integers wrap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# As texts, because NumPy is loaded when a case runs, which also decides the element type: Any.
Array: TypeAlias = "NDArray[Any]"
Ufunc: TypeAlias = "Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]"

DtypeName = Literal[
    "int8",
    "uint8",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
]
RedopName = Literal["sum", "prod", "min", "max", "avg"]
DTYPES: tuple[DtypeName, ...] = get_args(DtypeName)
REDOPS: tuple[RedopName, ...] = get_args(RedopName)

# nccl-tests' short names
ALIASES: dict[str, DtypeName] = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "char": "int8",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """An element type of `item_bytes` bytes.

    exact_up_to: the largest whole number below which every whole number is exact: 2^(mantissa
    bits), or the largest value of an integer. largest: what larger results become, as GPUs convert
    to fp8 (cvt's satfinite, which NCCL uses too); infinity for types that have it as a result.
    """

    name: DtypeName
    item_bytes: int
    exact_up_to: int
    largest: float = float("inf")

    @property
    def is_float(self) -> bool:
        return "float" in self.name

    def numpy(self) -> "np.dtype[np.generic]":
        """The NumPy dtype (bfloat16 and float8 from ml_dtypes)."""
        return _numpy_dtype(self.name)

    def accumulator(self) -> "np.dtype[np.generic]":
        """The type in which one step accumulates: float32 for floats of 16 and of 8 bits."""
        return _numpy_dtype("float32" if self.is_float and self.item_bytes <= 2 else self.name)


_DTYPE_OF = {
    one.name: one
    for one in (
        Dtype(name="int8", item_bytes=1, exact_up_to=127),
        Dtype(name="uint8", item_bytes=1, exact_up_to=255),
        Dtype(name="int32", item_bytes=4, exact_up_to=2**31 - 1),
        Dtype(name="int64", item_bytes=8, exact_up_to=2**53),
        Dtype(name="float16", item_bytes=2, exact_up_to=2048),
        Dtype(name="bfloat16", item_bytes=2, exact_up_to=256),
        Dtype(name="float32", item_bytes=4, exact_up_to=2**24),
        Dtype(name="float64", item_bytes=8, exact_up_to=2**53),
        Dtype(name="float8_e4m3fn", item_bytes=1, exact_up_to=16, largest=448.0),
        Dtype(name="float8_e5m2", item_bytes=1, exact_up_to=8, largest=57344.0),
    )
}


def dtype(name: DtypeName) -> Dtype:
    """The element type of that name.

    >>> dtype("bfloat16").item_bytes
    2
    """
    return _DTYPE_OF[name]


@cache
def _numpy_dtype(name: DtypeName) -> "np.dtype[np.generic]":
    import ml_dtypes
    import numpy as np

    return np.dtype(
        getattr(ml_dtypes, name) if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2") else name
    )


def ufunc(redop: RedopName) -> "Ufunc":
    """The NumPy function (a, b, out) of a reduction; avg is a sum that divide() finishes."""
    import numpy as np

    def minimum(a: "Array", b: "Array", out: "Array") -> "Array":
        return np.minimum(a, b, out=out)  # unlike add, it takes the output by name only

    def maximum(a: "Array", b: "Array", out: "Array") -> "Array":
        return np.maximum(a, b, out=out)

    functions: dict[RedopName, Ufunc] = {
        "sum": np.add,
        "avg": np.add,
        "prod": np.multiply,
        "min": minimum,
        "max": maximum,
    }
    return functions[redop]


def saturate(values: "Array", kind: Dtype) -> None:
    """Bring accumulated values in place into the range that the type has; NaN stays.

    >>> import numpy as np
    >>> values = np.array([460, -1e9, 3], np.float32)
    >>> saturate(values, dtype("float8_e4m3fn"))
    >>> values.tolist()
    [448.0, -448.0, 3.0]
    """
    import numpy as np

    if kind.largest < float("inf"):
        np.clip(values, -kind.largest, kind.largest, out=values)


def divide(values: "Array", n: int) -> None:
    """Divide in place by n: floats exactly rounded, integers towards zero (as C does)."""
    import numpy as np

    if values.dtype.kind in "iu":
        wide = values.astype(np.int64)  # n may be more than the type can hold
        values[...] = np.sign(wide) * (np.abs(wide) // n)
    else:
        np.divide(values, n, out=values)
