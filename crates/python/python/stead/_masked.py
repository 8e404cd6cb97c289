"""Masked arrays of NumPy, which few programs have."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeGuard

    import numpy as np


def is_masked(array: Any) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    """True for one. NumPy loads what they are when somebody first asks for it, which takes longer than the first steps of a stream: who has one
    has asked."""
    # Another thread may load it just now.
    masked = getattr(sys.modules.get("numpy.ma.core"), "MaskedArray", None)
    return masked is not None and isinstance(array, masked)
