#!/usr/bin/env python3
"""Makes the small files that the documents use in their examples, in the directory that is named."""

import gzip
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tipsy_files import example  # noqa: E402


def main() -> None:
    folder = Path(sys.argv[1])
    logs = folder / "logs"
    logs.mkdir(parents=True)
    levels = ["INFO", "INFO", "INFO", "WARN", "ERROR"]
    for day in range(1, 4):
        lines = [
            f"2026-03-{day:02} {i // 120:02}:{i // 2 % 60:02}:{i % 2 * 30:02} {levels[i * 7 % 5]} "
            f"node{i % 13:02} {'disk full' if i % 97 < 3 else 'job done'} code={i % 11}\n"
            for i in range(2880)
        ]
        data = "".join(lines).encode()
        if day == 3:
            (logs / f"day{day}.log.gz").write_bytes(gzip.compress(data, mtime=0))
        else:
            (logs / f"day{day}.log").write_bytes(data)

    (folder / "people.csv").write_text(
        'name,age,city\n"Doe, Jane",41,Graz\nJoe,NA,Wien\nAnn,29,Graz\n', encoding="utf-8"
    )
    (folder / "broken.csv").write_text("id,bytes\n1,100\n2,abc\n3,300\n", encoding="utf-8")

    r = np.random.default_rng(11)
    centres = np.array([[0.0, 0.0], [5.0, 5.0], [0.0, 6.0]])
    points = np.concatenate([c + r.normal(scale=0.5, size=(2000, 2)) for c in centres])
    np.save(folder / "points.npy", r.permutation(points))

    # A blob with a hole, 48 voxels a side.
    z, y, x = np.mgrid[-1:1:48j, -1:1:48j, -1:1:48j]
    radius = np.sqrt(x * x + y * y + z * z)
    volume = np.exp(-((radius - 0.6) ** 2) / 0.02) + 0.7 * np.exp(-(radius**2) / 0.01)
    volume.astype("<f4").tofile(folder / "volume.raw")

    example(folder / "galaxy.tipsy")

    (folder / "stars.bin").write_bytes(b"".join(b"%-15d\n" % (i * i) for i in range(1000)))


if __name__ == "__main__":
    main()
