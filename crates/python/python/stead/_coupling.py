"""Programs on several nodes whose streams reach each other."""

from __future__ import annotations

import ctypes

from . import _mpi, _stage, _stead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any


class Coupling:
    """Programs of one job whose streams reach each other, whatever nodes they are on, as `stead.couple` gives it.

    It is a `comm` for `stead.writer` and `stead.reader`. With `with` it is closed at the end of the block, else when MPI ends.
    """

    __slots__ = {
        "name": "The part that this program is.",
        "rank": "Which rank of the part this is.",
        "size": "How many ranks the part has.",
        "parts": "The ranks of each part, in the communicator that all of them have.",
        "comm": "A communicator of the ranks of the part, for the program's own messages.",
        "_coupling": "",
        "__weakref__": "",
    }
    name: str
    rank: int
    size: int
    parts: dict[str, list[int]]
    comm: Any

    def __init__(self, name: str, comm: Any, coupling: _stead.Coupling) -> None:
        self._coupling = coupling
        self.rank, parts = coupling.told()
        self.name, self.parts = name, dict(parts)
        self.size = len(self.parts[name])
        # By the ranks of the part alone: programs in other languages need not do the same.
        all_ranks = comm.Get_group()
        own = all_ranks.Incl(self.parts[name])
        self.comm = comm.Create_group(own)
        own.Free()
        all_ranks.Free()

    def close(self) -> None:
        """Takes part in nothing any more. Writers and readers that are open go on, and others read what was written."""
        self._coupling.close()

    def __enter__(self) -> Coupling:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stead.Coupling '{self.name}', rank {self.rank} of {self.size}>"


def couple(comm: Any, part: str, *, timeout: float = 600, dataspaces: _stage.Spaces = None) -> Coupling:
    """Couples the programs of an MPI job: their streams reach each other, whatever nodes they are on.

        >>> sim = stead.couple(MPI.COMM_WORLD, "sim")
        >>> with stead.writer("T", comm=sim) as w:
        ...     ...

    All ranks of `comm` call it, and each says which part it is of. The ranks of a part write a stream, or read it, together. Messages of the
    program are not touched: it has `comm` of what this returns for its own, in place of a world that other programs are in, too. MPI must have
    `MPI_THREAD_MULTIPLE`, as mpi4py begins it.

    Args:
        comm: A communicator of mpi4py, such as `MPI.COMM_WORLD` of `mpirun -n 4 sim : -n 2 analysis`.
        part: The name of this program's part: letters, digits, `.`, `-` and `_`.
        timeout: Seconds within which all ranks are to come. Where they have not, nothing collective of stead can be done with `comm` any more.
        dataspaces: As for `writer`.

    Raises:
        UsageError: The name is none, or MPI has too few threads.
        TimedOutError: Not all ranks have come. MPI tells nobody which; of those that have told MPI that they come the error names who is missing.
        PeerError: Another rank has failed, or is gone.
        NotFoundError: libstead_mpi cannot be loaded.
    """
    given = _stage.given(dataspaces)
    maker, within = _mpi.source_within(comm, timeout)
    made = Coupling(part, comm, _stead.Coupling(maker, ctypes.addressof(within), part, given, timeout))
    _mpi.close_before_mpi(made)
    return made
