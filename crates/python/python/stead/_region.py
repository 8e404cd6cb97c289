"""Memory that programs and transfers share, by a name."""

from __future__ import annotations

import mmap
import os

from . import _stage, _stead
from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any


class Region:
    """Memory with a name, as an array. It is an end of a transfer as any file: `stead.stage(region, "lustre://run1/")`.

    With `with` it is closed at the end of the block. The region itself stays until it is removed.
    """

    __slots__ = {
        "name": "Its name.",
        "array": "What is there, to be read and written: all that have the region see the same. None once it is closed.",
        "_region": "",
        "_given": "",
    }
    name: str
    array: Any

    def __init__(self, name: str, region: _stead.Region, shape: Any, dtype: Any, given: list[str]) -> None:
        import numpy as np

        self.name, self._region, self._given = name, region, given
        kind = elements(name, dtype)
        if shape is None and region.size % kind.itemsize:
            raise make("usage", f"region '{name}' has {region.size} bytes, which are no whole elements of {kind}", path=os.fspath(region.path))
        memory: Any = b""
        if region.size:
            descriptor = region.descriptor()
            try:
                # Arrays hold the mapping, as long as there is one of them.
                memory = mmap.mmap(descriptor, region.size)
            finally:
                os.close(descriptor)
        self.array = np.ndarray(region.size // kind.itemsize if shape is None else shape, kind, memory)

    @property
    def location(self) -> str:
        """What transfers call it: `memory://NAME`."""
        return self._region.location

    @property
    def path(self) -> str:
        """Its file, in memory."""
        return os.fspath(self._region.path)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._region.size

    def touch(self) -> None:
        """Says that its bytes were changed, which the system does not notice: `sync` and `newer` go by the time of change. Closing it
        says so, too."""
        self._region.touch()

    def close(self) -> None:
        """Lets go of it. Arrays that were made of it go on as they are; the region stays."""
        self.array = None
        self._region.close()

    def remove(self) -> None:
        """Closes and removes it. Its memory goes with the last array in any process. That somebody has removed it is no error."""
        self.close()
        _stead.remove_region(self.name, self._given)

    def __fspath__(self) -> str:
        return self.location

    def __enter__(self) -> Region:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.array is None:
            return f"Region({self.name!r}, closed)"
        return f"Region({self.name!r}, {self.array.dtype}, {self.array.shape})"


def region(name: str, shape: int | tuple[int, ...] | None = None, dtype: Any = None, *, dataspaces: _stage.Spaces = None) -> Region:
    """Memory that programs and transfers share: makes a region of zeros, or opens one that is there.

        >>> r = stead.region("field", (1000, 1000), "f8")
        >>> r.array[:] = compute()
        >>> stead.stage(r, "lustre://run1/field.raw").wait()
        >>> r.remove()

    It is a file in memory (tmpfs), mapped, in the dataspace `memory` that every user has: `/dev/shm/stead-UID`, unless one of this name is
    configured. So what is written to it can be staged by this process, another one or a daemon, and it stays when the program has ended, until it
    is removed, by `Region.remove` or as a file; `regions` lists all. All of its memory is taken at once, so that writing never fails.

    Args:
        name: Its name, or a path such as `run1/field`.
        shape: Of the array: a number of elements, or several. None opens a region that is there, as an array of one dimension.
        dtype: Type of elements; bytes if it is not said.
        dataspaces: A folder of the dataspace `memory`, before the one that is configured.

    Raises:
        UsageError: There is one of the name and a shape is given, it has no bytes, or they are no whole elements.
        NotFoundError: There is none, and no shape is given.
        NoSpaceError: There is not as much memory.
        PermissionDeniedError: The folder of regions is not private to this user.
    """
    given = _stage.given(dataspaces)
    size = None
    if shape is not None:
        import math

        steps = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(step < 0 for step in steps):
            raise make("usage", f"no array has the shape {shape}")
        size = math.prod(steps) * elements(name, dtype).itemsize
    return Region(name, _stead.Region(name, size, given), shape, dtype, given)


def elements(name: str, dtype: Any) -> Any:
    """The type of elements of a region: what other processes can read, too."""
    import numpy as np

    kind = np.dtype(np.uint8 if dtype is None else dtype)
    if kind.hasobject:
        raise TypeError(f"region '{name}' cannot have elements of {kind}: objects of Python are in the memory of one process")
    return kind


def regions(*, dataspaces: _stage.Spaces = None) -> dict[str, int]:
    """The regions of this user: names, and bytes of each.

    Args:
        dataspaces: As for `region`.

    Raises:
        PermissionDeniedError: The folder of regions is not private to this user.
    """
    return dict(_stead.list_regions(_stage.given(dataspaces)))
