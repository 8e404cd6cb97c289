#!/usr/bin/env python3
"""Writes the snapshots of `tipsy_golden.rs` with pytipsy (1.0): a standard file, and a native one without padding."""

from pathlib import Path

import pytipsy

HERE = Path(__file__).parent
FRONT = ["mass", "x", "y", "z", "vx", "vy", "vz"]
FIELDS = {
    "gas": [*FRONT, "dens", "tempg", "h", "zmetal", "phi"],
    "dark": [*FRONT, "eps", "phi"],
    "star": [*FRONT, "metals", "tform", "eps", "phi"],
}
COUNTS = {"gas": 2, "dark": 3, "star": 1}


def main() -> None:
    """Field f of particle r of species k is 100 k + 16 r + f + 1/4."""
    tables = [
        {name: [100 * k + 16 * r + f + 0.25 for r in range(COUNTS[species])] for f, name in enumerate(FIELDS[species])}
        for k, species in enumerate(FIELDS)
    ]
    header = {"time": 0.5, "n": 6, "ndim": 3, "ngas": 2, "ndark": 3, "nstar": 1}
    for name, standard in [("standard", True), ("native", False)]:
        pytipsy.wtipsy(str(HERE / f"{name}.tipsy"), header, *tables, STANDARD=standard)


if __name__ == "__main__":
    main()
