"""The nine operations with PySpark, over a standalone cluster whose workers are hosts of the lab.

    python bench/spark_peer.py nine MASTER ADDRESS FILE OUT RUNS

is a driver at ADDRESS, run on that host; it prints an object with seconds and answers for each run. Each worker has one core and a gigabyte. All hosts
see the file, so that each worker reads its part where it is, as with a distributed file system whose blocks are local.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from jobs import NUMBERS

PORT = 7077


def spark_class():
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")


def lab_exec(lab, host):
    return [str(Path(__file__).parent.parent / "lab" / "lab"), "exec", lab, str(host)]


def named(address):
    """Nobody is to ask for the names of hosts, which nobody knows."""
    return os.environ | {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address}


def cluster(addresses, lab, scratch):
    """The processes of a master and its workers, for `end`."""
    begun = []
    places = {"SPARK_LOCAL_DIRS": str(scratch), "SPARK_WORKER_DIR": str(scratch), "SPARK_LOG_DIR": str(scratch)}

    def begin(host, *words):
        env = named(addresses[host - 1]) | places
        with open(Path(scratch) / f"host{host}.log", "a") as log:
            begun.append(subprocess.Popen([*lab_exec(lab, host), spark_class(), *words], stdout=log, stderr=log, env=env))

    begin(1, "org.apache.spark.deploy.master.Master", "--host", addresses[0], "--port", str(PORT), "--webui-port", "0")
    for host, address in enumerate(addresses, 1):
        begin(host, "org.apache.spark.deploy.worker.Worker", "--host", address, "--cores", "1", "--memory", "1g", "--webui-port", "0",
              f"spark://{addresses[0]}:{PORT}")
    return begun


def end(begun):
    for process in begun:
        process.kill()
        process.wait()


def limit(size):
    """Seconds for the runs over so many bytes, with the start of a session."""
    return 90 + size / 12e6


def measure(lab, addresses, file, out, runs, most):
    """What a driver on the last host finds in so many runs, or in those that have ended within `most` seconds."""
    words = [sys.executable, __file__, "nine", addresses[0], addresses[-1], file, out, runs]
    log = Path(out).with_name("driver.log")
    with open(log, "a") as said, subprocess.Popen([*lab_exec(lab, len(addresses)), *map(str, words)], stdout=subprocess.PIPE, stderr=said, text=True,
                                                  env=named(addresses[-1]), start_new_session=True) as driver:
        # With what it has begun.
        stop = threading.Timer(most, os.killpg, (driver.pid, signal.SIGKILL))
        stop.start()
        try:
            found = [json.loads(line) for line in driver.stdout if line.startswith("{")]
        finally:
            stop.cancel()
        code = driver.wait()
    over = code == -signal.SIGKILL
    if code and not over:
        raise SystemExit(f"PySpark: exit code {code}\n{log.read_text()[-4000:]}")
    return {"runs": found, "most": most, "over": over}


def histogram(lines):
    """Bytes of a part of the lines, newlines too."""
    import numpy as np

    total = np.zeros(256, np.int64)
    held, size = [], 0
    for line in lines:
        held.append(line)
        size += len(line) + 1
        if size > 1 << 22:
            total += np.bincount(np.frombuffer("\n".join([*held, ""]).encode(), np.uint8), minlength=256)
            held, size = [], 0
    if held:
        total += np.bincount(np.frombuffer("\n".join([*held, ""]).encode(), np.uint8), minlength=256)
    yield total


def nine(spark, file, out):
    """Lines; sum, mean and deviation of a column; Gramian of the numbers; a column normalised; digits; entropy of the bytes."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    head = open(file).readline().strip().split(",")
    fields = [T.StructField(n, T.DoubleType() if n in NUMBERS else T.StringType()) for n in head]
    table = spark.read.csv(f"file://{file}", header=True, schema=T.StructType(fields))
    pairs = [(a, b) for i, a in enumerate(NUMBERS) for b in NUMBERS[i:]]
    x = F.col("latency_ms")
    ask = [F.count(F.lit(1)).alias("rows"), F.sum(x).alias("sum"), F.avg(x).alias("mean"), F.stddev_pop(x).alias("std")]
    found = table.agg(*ask, *[F.sum(F.col(a) * F.col(b)).alias(f"{a} {b}") for a, b in pairs]).first().asDict()
    counts = spark.sparkContext.textFile(f"file://{file}").mapPartitions(histogram).sum()
    shutil.rmtree(out, ignore_errors=True)
    table.select(((x - found["mean"]) / found["std"]).alias("z")).write.parquet(f"file://{out}")
    total = counts.sum()
    entropy = -sum(c / total * math.log2(c / total) for c in counts.tolist() if c)
    return {"lines": int(counts[10]), "mean": found["mean"], "digits": int(counts[48:58].sum()), "entropy": entropy}


def drive(master, address, file, out, runs):
    from pyspark.sql import SparkSession

    # That of the workers, too.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"spark://{master}:{PORT}").appName("nine").config("spark.driver.host", address)
    builder = builder.config("spark.driver.bindAddress", address).config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").config("spark.executor.memory", "900m")
    spark = builder.config("spark.sql.shuffle.partitions", "8").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for _ in range(runs):
        begin = time.perf_counter()
        answers = nine(spark, file, out)
        print(json.dumps({"seconds": time.perf_counter() - begin, **answers}), flush=True)
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1] != "nine":
        raise SystemExit(__doc__)
    drive(*sys.argv[2:6], int(sys.argv[6]))
