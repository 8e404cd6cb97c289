"""Where to compute: what is measured of the machines."""

from __future__ import annotations

import json
import os

from . import _stead
from ._dataset import telling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Path = str | os.PathLike[str]


def calibrate(
    tiers: Path | Iterable[Path] = ".",
    *,
    seconds: float | None = None,
    output: Path | None = None,
    comm: Any = None,
) -> dict[str, Any]:
    """Measures the machine, and the links to others, for `place="auto"`; writes what it finds to the profile.

        >>> profile = stead.calibrate("/data", seconds=5)
        >>> [(t["name"], t["bytes_per_s"]) for t in profile["tiers"]]

    Args:
        tiers: Where data lie: folders, in each of which a file is made for it and removed, or files, which are only read.
        seconds: How long it may take, about; 20 unless it is said.
        output: Where to write, in place of `STEAD_PROFILE` or `~/.config/stead/profile.toml`.
        comm: A communicator of mpi4py, all ranks of which make this call. The first one writes the profile.

    Returns:
        The profile: `sites`, `tiers`, `links` and `kernels`, and `path`, where it was written.

    Raises:
        UsageError: Seconds that make no sense, or a file too small to be measured.
        NotFoundError: A tier that is on none of the hosts.
        NoSpaceError: A device is full.
        PeerError: Another rank is gone.
        Error: Something else failed. In any case the profile is as it was.
    """
    ranks = None
    if comm is not None:
        from . import _mpi

        ranks = _mpi.source(comm)
    with telling(ranks):
        named = [tiers] if isinstance(tiers, (str, os.PathLike)) else list(tiers)
        paths = [os.fspath(t) for t in named]
        to = None if output is None else os.fspath(output)
        within = None if seconds is None else float(seconds)
    text, path = _stead.calibrate(paths, within, to, ranks)
    profile: dict[str, Any] = json.loads(text)
    return profile | {"path": path}
