"""stead: keep the data home; send the work.

Analysis kernels over files, arrays and data frames where they lie: one scan for all that is asked together, on
all cores, in bounded memory, with the same bits however the work was split.

    >>> import stead
    >>> ds = stead.open("flights.csv")
    >>> r = ds.run(stead.rows(), stead.mean("arr_delay"), where="dep_delay > 0", by="carrier")
    >>> r.to_pandas()

`open` says what can be opened, `Dataset.run` what can be asked, `kernels` lists what can be computed. `read_session`
has many tasks read a file in parallel. `put` lays a file over the nodes of a job, `get` brings it back. With `offload`
ranks that are where the data are work for the others. `stage` moves files and trees between tiers of storage;
`daemon` is who does that for programs that do not wait. With `writer` and `reader` programs hand arrays to each other in
memory, step by step, and a `flow` computes on them meanwhile. With fsspec what is staged opens by its name
(`stead://nvme0/run1/a.csv`, `FileSystem`).
"""

from __future__ import annotations

from . import _kernels, persist
from ._admin import Admin
from ._buffer import buffer
from ._coupling import Coupling, couple
from ._daemon import Daemon, Handed, daemon
from ._dataset import Dataset, Description, open, run
from ._errors import (
    CancelledError,
    ChangedError,
    DataError,
    Error,
    FormatError,
    InternalError,
    IoError,
    LimitError,
    NoSpaceError,
    NotFoundError,
    PeerError,
    PermissionDeniedError,
    TimedOutError,
    UsageError,
)
from ._flow import Flow, FlowArray, FlowPicture, FlowSource, RunningFlow, flow
from ._handed_flow import HandedFlow
from ._kernels import *  # noqa: F403
from ._layout import Copied, describe_layout, get, put
from ._offload import FileView, Site, offload
from ._own import kernel
from ._plan import calibrate
from ._progress import Snapshot
from ._read import Reader, Reads, Session, View, open_reader, read_session
from ._region import Region, region, regions
from ._report import Report
from ._stage import Staged, Transfer, cancel_transfer, check_stage, dataspaces, preview_stage, resume_transfer, stage, transfers, wait_transfer
from ._stead import MISSING, Cancel, Read, __version__
from ._stream_step import Step, Variable
from ._stream_survey import explain_stream, recordings, remove_stream, stream_info, streams
from ._streams import StreamReader, StreamWriter, empty, reader, writer
from ._subscription import Subscription
from ._tipsy import Tipsy
from ._xarray import Datasets, open_stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._fsspec import FileSystem as FileSystem


def is_missing(values: Any) -> Any:
    """Which values are missing, as an array of bool of the same shape (a bool for one value).

    A missing value is a NaN with the payload of R's `NA_real_` (`stead.MISSING`); a NaN that was computed is a
    value. In kernels written in Python this tells the two apart; `numpy.isnan` is true for both.
    """
    # NumPy is loaded when it is needed first: the command does without.
    from . import _memory

    return _memory.is_missing(values)


def where_help() -> str:
    """What can be written in `where=`: the language of filters."""
    from ._stead import filter_help

    return filter_help()


def __getattr__(name: str) -> Any:
    # Only who names it needs fsspec.
    if name == "FileSystem":
        from ._fsspec import FileSystem

        return FileSystem
    raise AttributeError(f"module 'stead' has no attribute '{name}'")


__all__ = [
    "MISSING",
    "Admin",
    "Cancel",
    "CancelledError",
    "ChangedError",
    "Copied",
    "Coupling",
    "Daemon",
    "DataError",
    "Dataset",
    "Datasets",
    "Description",
    "Error",
    "FileView",
    "Flow",
    "FlowArray",
    "FlowPicture",
    "FlowSource",
    "FormatError",
    "Handed",
    "HandedFlow",
    "InternalError",
    "IoError",
    "LimitError",
    "NoSpaceError",
    "NotFoundError",
    "PeerError",
    "PermissionDeniedError",
    "Read",
    "Reader",
    "Reads",
    "Region",
    "Report",
    "RunningFlow",
    "Session",
    "Site",
    "Snapshot",
    "Staged",
    "Step",
    "StreamReader",
    "StreamWriter",
    "Subscription",
    "TimedOutError",
    "Tipsy",
    "Transfer",
    "UsageError",
    "Variable",
    "View",
    "__version__",
    "buffer",
    "calibrate",
    "cancel_transfer",
    "check_stage",
    "couple",
    "daemon",
    "dataspaces",
    "describe_layout",
    "empty",
    "explain_stream",
    "flow",
    "get",
    "is_missing",
    "kernel",
    "offload",
    "open",
    "open_reader",
    "open_stream",
    "persist",
    "preview_stage",
    "put",
    "read_session",
    "reader",
    "recordings",
    "region",
    "regions",
    "remove_stream",
    "resume_transfer",
    "run",
    "stage",
    "stream_info",
    "streams",
    "transfers",
    "wait_transfer",
    "where_help",
    "writer",
    *_kernels.__all__,
]
