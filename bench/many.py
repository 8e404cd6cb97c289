"""Sessions that are opened and closed one after the other, by the Python package: what is left of them.

    python bench/many.py FILE SESSIONS
"""

import json
import os
import sys
import time

import stead


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sessions(path, count):
    most = os.path.getsize(path) - 4096
    for i in range(count):
        with stead.read_session(path) as session:
            bytes(session.pread(i * 0x9E3779B97F4A7C15 % most, 4096))


path, count = sys.argv[1], int(sys.argv[2])
sessions(path, count // 10)
# Readers without work stay for half a second.
time.sleep(0.8)
before, begin = resident(), time.perf_counter()
sessions(path, count)
took = time.perf_counter() - begin
time.sleep(0.8)
print(json.dumps({"sessions": count, "seconds": took, "resident": [before, resident()]}))
