"""Many small reads in sequence: bench/reader.cpp, stead::FileReader beside std::ifstream."""

import json
import shutil
import subprocess
from pathlib import Path

from run import command

HERE = Path(__file__).parent
RECORD = 48


def reader(built, data, records, runs):
    """Seconds of each way for so many records of 48 bytes; None where there is no g++ or no C library beside stead."""
    library = Path(built) / "libstead_capi.a"
    if shutil.which("g++") is None or not library.exists():
        return None
    program, file = Path(data) / "reader", Path(data) / f"records-{records}.bin"
    words = ["g++", "-std=c++17", "-O2", f"-I{HERE.parent / 'include'}", HERE / "reader.cpp", "-o", program, library]
    subprocess.run([*map(str, words), "-pthread", "-ldl", "-lm"], check=True)
    if not file.exists():
        part = file.with_suffix(".part")
        command([str(Path(built) / "stead-bench"), "strings", str(part), "--bytes", str(records * RECORD)])
        part.rename(file)
    return json.loads(command([str(program), str(file), str(runs)]))
