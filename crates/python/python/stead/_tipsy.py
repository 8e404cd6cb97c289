"""Tipsy snapshots, loaded in parallel."""

from __future__ import annotations

import os

from ._read import Session, source
from ._stead import Tipsy as _Tipsy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import numpy as np
    from typing_extensions import Unpack

    from ._read import Means
    from ._stead import Read


class Tipsy:
    """A Tipsy snapshot, of which each task loads its own particles as NumPy arrays.

        >>> with stead.Tipsy("galaxy.tipsy") as snapshot:
        ...     share = snapshot.load("dark", task=1, tasks=4, columns=["x", "y", "z", "mass"])

    It may be used by any number of threads; the interpreter's lock is not held while a task loads. Tasks of an event loop,
    and chares, ask by `read`, which does not wait. Kernels need none of this: `stead.open` knows the format.

    Args:
        path: The file. Byte order, length of the header and precision are found by its length.
        memory: Bytes for blocks that are read, or a size such as `"64MiB"`.
        comm: A communicator of mpi4py, all ranks of which make this call, as for `stead.read_session`. They load their
            shares without each other; each byte is read from the file system by one of them.
        options: `readers`, `block`, `depth`, `deadline`, `direct`, `share` and `engine` as for `stead.read_session`; and
            `ahead`, with `comm`: without it, only what tasks ask for is read.

    Raises:
        NotFoundError: There is no such file.
        FormatError: It is no Tipsy file, or not a whole one.
        Error: As `stead.read_session`.
    """

    session: Session
    """The session over the whole file, which ends with the snapshot."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        memory: int | str | None = None,
        *,
        comm: Any = None,
        **options: Unpack[Means],
    ):
        self._native = _Tipsy(source(path, comm), {"memory": memory, **options})
        self.session = Session(self._native, 0, None, {})

    @property
    def time(self) -> float:
        """Time of the snapshot; in cosmological runs the scale factor."""
        return self._native.time

    @property
    def byte_order(self) -> str:
        """`big` in "standard" files, `little` in "native" ones."""
        return self._native.byte_order

    @property
    def counts(self) -> dict[str, int]:
        """Number of particles of each species: `gas`, `dark` and `star`."""
        return dict(self._native.counts)

    def dtype(self, species: str) -> np.dtype[Any]:
        """The type of one record of a species as it lies in the file, for `numpy.memmap` and `numpy.frombuffer`."""
        import numpy as np

        order = ">" if self.byte_order == "big" else "<"
        fields = self._native.fields(species)
        return np.dtype([(name, f"{order}f{4 if kind == 'f32' else 8}") for name, kind, _ in fields])

    def part(self, species: str, task: int = 0, tasks: int = 1) -> range:
        """The numbers, within their species, of the particles that task `task` of `tasks` loads. Together the tasks
        have each particle once, in order; there may be more tasks than particles."""
        first, count, _, _ = self._native.part(species, task, tasks)
        return range(first, first + count)

    def load(
        self, species: str, task: int = 0, tasks: int = 1, columns: Sequence[str] | str | None = None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """The particles of task `task` of `tasks`, numbered from 0: an array for each column, in this machine's byte order, of
        float32 or float64 as the file has them. They are the caller's, and may be written to.

        Args:
            species: `gas`, `dark` or `star`.
            task: Which share.
            tasks: How many shares there are.
            columns: Names of columns; all of them if it is None.

        Raises:
            UsageError: There is no such task, species or column.
            ChangedError: The file became shorter.
        """
        import numpy as np

        names = [columns] if isinstance(columns, str) else list(columns or [])
        loaded = self._native.load(species, task, tasks, names)
        return {name: np.asarray(values) for name, values in loaded}

    def read(self, species: str, task: int = 0, tasks: int = 1, *, deadline: float | None = None) -> Read:
        """Asks for the records of task `task` of `tasks`, and does not wait: `await` the read, or take its `result` later.
        The answer is a view of them as they lie in the file, for `view.array(snapshot.dtype(species))`, which is an array
        of all their fields.

        Args:
            species: `gas`, `dark` or `star`.
            task: Which share.
            tasks: How many shares there are.
            deadline: Seconds after which it fails; None is what the snapshot was opened with.

        Raises:
            UsageError: There is no such task or species.
        """
        _, _, offset, length = self._native.part(species, task, tasks)
        return self.session.read(offset, length, deadline=deadline)

    def close(self) -> None:
        """Ends it; arrays and views stay.

        Raises:
            ChangedError: Somebody wrote to the file.
        """
        try:
            self.session.close()
        finally:
            self._native.close()

    def __enter__(self) -> Tipsy:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # An exception that is on its way says more than that the file has changed.
        try:
            self.close()
        except Exception:
            if kind is None:
                raise

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {k}" for k, n in self.counts.items())
        return f"<stead.Tipsy: {counts}, time {self.time:g}>"
