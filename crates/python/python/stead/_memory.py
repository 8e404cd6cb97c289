"""What lies in memory as datasets: arrays, dicts of arrays, data frames, bytes.

Contiguous arrays are lent and not copied. What has gaps, another byte order (in tables), or missing values that
are marked in another way than stead's is copied once.
"""

from __future__ import annotations

import numpy as np

from . import _stead
from ._errors import UsageError, make
from ._masked import is_masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Kinds of dtype that datasets hold, but for float16 and longdouble.
KINDS = "fiub"


def is_missing(values: Any) -> Any:
    """See `stead.is_missing`."""
    array = np.asarray(values)
    if array.dtype != np.float64:
        array = array.astype(np.float64) if array.dtype.kind in KINDS else np.zeros(array.shape)
    bits = np.ascontiguousarray(array).view(np.uint64)
    # The quiet bit and the sign do not matter.
    missing = (bits & np.uint64(0x7FF7FFFFFFFFFFFF)) == np.uint64(0x7FF00000000007A2)
    return bool(missing[()]) if array.ndim == 0 else missing


def holdable(dtype: np.dtype[Any]) -> bool:
    """True if a dataset holds elements of this type."""
    return dtype.kind in KINDS and dtype.itemsize in (1, 2, 4, 8) and dtype != np.float16


def lendable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself if its elements lie without gaps in C or Fortran order; a copy in C order otherwise."""
    array = np.asarray(array)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    return array


def with_missing(array: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy as float64 in which the masked elements are missing."""
    copy = np.array(array, dtype=np.float64, order="K")
    copy[mask] = _stead.MISSING
    return copy


def open_array(array: np.ndarray[Any, Any], name: str, names: list[str] | None) -> _stead.Dataset:
    """One array as a dataset."""
    if is_masked(array):
        array = with_missing(array.filled(0), np.ma.getmaskarray(array))
    return _stead.open_array(name, lendable(array), names)


def open_bytes(data: Any, name: str, options: dict[str, Any]) -> _stead.Dataset:
    """Bytes as if they were those of a file."""
    return _stead.open_bytes(name, np.frombuffer(data, dtype=np.uint8), options)


def is_bool(array: np.ndarray[Any, Any]) -> bool:
    """True for objects that are bool, or None."""
    return all(v is None or isinstance(v, (bool, np.bool_)) for v in array) and any(v is not None for v in array)


def column(name: str, values: Any, nan_is_missing: bool) -> np.ndarray[Any, Any] | str:
    """One column as an array that can be lent, or why there is none."""
    mask = None
    if is_masked(values):
        mask = np.ma.getmaskarray(values)
        values = values.filled(0)
    elif hasattr(values, "isna") and str(getattr(values, "dtype", ""))[:1] in ("I", "U", "F", "b"):
        # Columns of pandas that carry a mask: Int64, UInt8, Float32, boolean.
        na = getattr(values.dtype, "na_value", None)
        if na is not None and na is not np.nan and not isinstance(na, float):
            mask = np.asarray(values.isna())
            values = values.to_numpy(dtype=np.float64, na_value=0.0)
    if not isinstance(values, np.ndarray) and hasattr(values, "to_numpy"):
        values = values.to_numpy()
    array = np.asarray(values)
    if array.ndim != 1:
        raise make("usage", f"column '{name}' has {array.ndim} dimensions; a column has one", column=name)
    if array.dtype == object and is_bool(array):
        # What polars and Arrow make of bool with missing values.
        mask = np.array([v is None for v in array])
        array = np.array([bool(v) for v in array])
    if not holdable(array.dtype):
        return str(array.dtype)
    if nan_is_missing and array.dtype.kind == "f" and mask is None:
        nan = np.isnan(array)
        mask = nan if nan.any() else None
    if mask is not None and mask.any():
        return with_missing(array, mask)
    # A table is read in this machine's byte order.
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def open_table(columns: list[tuple[str, Any]], nan_is_missing: bool) -> tuple[_stead.Dataset, dict[str, str]]:
    """Named columns as a dataset, and the types of those that it cannot hold."""
    lent, left_out = [], {}
    for name, values in columns:
        found = column(name, values, nan_is_missing)
        if isinstance(found, str):
            left_out[name] = found
        else:
            lent.append((name, found))
    if not lent and left_out:
        raise make(
            "usage",
            f"none of the columns holds numbers: {', '.join(f'{n} ({t})' for n, t in left_out.items())}",
            hint="tables in memory hold numbers and bool; write text to a file, or open bytes of CSV",
        )
    return _stead.open_table(lent), left_out


def explain_left_out(e: UsageError, left_out: dict[str, str]) -> UsageError:
    """The error about a column that is not there, with what became of it."""
    for name, dtype in left_out.items():
        if f"column '{name}'" in str(e.args[0]):
            return make(  # type: ignore[return-value]
                "usage",
                f"column '{name}' holds {dtype}, and tables in memory hold numbers and bool only",
                hint="convert it first, for example with .astype('category').cat.codes or .astype('int64')",
                column=name,
            )
    return e
