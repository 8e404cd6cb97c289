"""Programs in C and C++: bench/reader.cpp, stead::FileReader beside std::ifstream in many small reads in sequence, and
bench/many.c, sessions that are opened and closed."""

import json
import shutil
import subprocess
from pathlib import Path

from run import command

HERE = Path(__file__).parent
RECORD = 48


def build(compiler, standard, source, built, data):
    """A program with the C library; None where there is no such compiler, or no library beside stead."""
    library = Path(built) / "libstead_capi.a"
    if shutil.which(compiler) is None or not library.exists():
        return None
    program = Path(data) / Path(source).stem
    words = [compiler, f"-std={standard}", "-D_GNU_SOURCE", "-O2", f"-I{HERE.parent / 'include'}", HERE / source, "-o", program,
             library]
    subprocess.run([*map(str, words), "-pthread", "-ldl", "-lm"], check=True)
    return program


def many(built, data, file, sessions):
    """Sessions of the C interface; None where it cannot be built."""
    program = build("cc", "c11", "many.c", built, data)
    return program and json.loads(command([str(program), str(file), str(sessions)]))


def reader(built, data, records, runs):
    """Seconds, and those of processors, of each way for so many records of 48 bytes; None where there is no g++ or no C
    library beside stead."""
    program, file = build("g++", "c++17", "reader.cpp", built, data), Path(data) / f"records-{records}.bin"
    if program is None:
        return None
    if not file.exists():
        part = file.with_suffix(".part")
        command([str(Path(built) / "stead-bench"), "strings", str(part), "--bytes", str(records * RECORD)])
        part.rename(file)
    return json.loads(command([str(program), str(file), str(runs)]))
