"""Communicators of mpi4py, for files that all ranks read together.

The package itself knows no MPI: `libstead_mpi`, which is built with the MPI of the machine, makes of a communicator what
it needs.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from ctypes.util import find_library
from functools import cache, wraps
from typing import Any
from weakref import WeakSet

from ._errors import make

NAME = "libstead_mpi.so"
HINT = "build libstead_mpi with the MPI that mpi4py uses, and name it in STEAD_MPI_LIBRARY; see docs/mpi.md"


class Within(ctypes.Structure):
    """A communicator, and milliseconds within which all of its ranks are to come: `stead_mpi_within` of stead_mpi.h."""

    _fields_ = (("communicator", ctypes.c_void_p), ("timeout_ms", ctypes.c_uint64))


_asking: WeakSet[Any] = WeakSet()


def close_before_mpi(site: Any) -> None:
    """Sees to it that a site is closed when MPI ends: storage ranks wait for it, and MPI waits for them."""
    _asking.add(site)


def _close() -> None:
    for site in list(_asking):
        site.close()


def _end_before_mpi(found: ctypes.CDLL) -> None:
    """Sees to it that our threads are out of MPI when it ends, however it does: MPICH aborts otherwise."""
    # What is registered later is called earlier, and mpi4py, which ends MPI in the same way, was imported before.
    if ctypes.pythonapi.Py_AtExit(found.stead_mpi_end):
        # Its places, of which there are some tens, are taken. It waits for other ranks a little sooner, then.
        atexit.register(found.stead_mpi_end)
    atexit.register(_close)
    mpi = sys.modules["mpi4py.MPI"]
    theirs = mpi.Finalize

    @wraps(theirs)
    def finalize() -> None:
        _close()
        found.stead_mpi_end()
        theirs()

    mpi.Finalize = finalize  # type: ignore[attr-defined]


@cache
def library() -> ctypes.CDLL:
    """libstead_mpi; it stays loaded."""
    named = os.environ.get("STEAD_MPI_LIBRARY")
    why: Exception | None = None
    for name in [named] if named else [NAME, find_library("stead_mpi")]:
        if name is None:
            continue
        try:
            found = ctypes.CDLL(name)
            found.stead_mpi_communicator_bytes.restype = ctypes.c_size_t
            found.stead_mpi_communicator_bytes.argtypes = []
            found.stead_mpi_make.restype = ctypes.c_int
            found.stead_mpi_make_within.restype = ctypes.c_int
            found.stead_mpi_end.restype = None
            found.stead_mpi_end.argtypes = []
        except (OSError, AttributeError) as e:
            why = why or e
            continue
        _end_before_mpi(found)
        return found
    raise make("not_found", f"libstead_mpi cannot be loaded: {why}", HINT, path=named or NAME)


def source(comm: Any) -> tuple[int, int]:
    """What `_stead.Session` makes a fabric of: a function and a communicator, each as an address."""
    # Whoever has a communicator has loaded it; loading it would begin MPI.
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(comm, mpi.Comm):
        raise TypeError(f"comm must be a communicator of mpi4py, not {type(comm).__name__}")
    if not isinstance(comm, mpi.Intracomm) or not comm:
        raise make("usage", "comm must be a communicator of one group of ranks, not an intercommunicator or a null one")
    found = library()
    # That of another MPI would be taken for an address that it is not.
    theirs, ours = mpi._sizeof(comm), found.stead_mpi_communicator_bytes()
    if theirs != ours:
        message = f"libstead_mpi was built with another MPI than the one that mpi4py uses, {mpi.get_vendor()[0]}"
        raise make("usage", message, HINT)
    return _address(found.stead_mpi_make), mpi._addressof(comm)


def source_within(comm: Any, timeout: float) -> tuple[int, Within]:
    """The same, for all ranks to come within so many seconds: what the second address is that of is to be kept until the fabric is made."""
    _, communicator = source(comm)
    # 0 would be what is usual, and no job lasts for centuries.
    milliseconds = int(min(max(timeout * 1000, 1), 2**53))
    return _address(library().stead_mpi_make_within), Within(communicator, milliseconds)


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address
