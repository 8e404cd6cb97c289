"""Watching a run, and stopping it: by an exception of the progress function, by Ctrl-C (KeyboardInterrupt), and by a
`stead.Cancel`, with which any thread stops it.
"""

import sys

import stead

flights = stead.open(sys.argv[1] if len(sys.argv) > 1 else "flights.csv")
whole = False


def watch(now):
    """Is called about ten times a second, and once at the end of each pass."""
    global whole
    whole = now.bytes == now.total_bytes


flights.run(stead.entropy(), progress=watch)
print("watched to the end:", "yes" if whole else "no")

cancel = stead.Cancel()
# Another thread would do this while the run is under way.
cancel.cancel()
try:
    flights.run(stead.entropy(), cancel=cancel)
except stead.CancelledError as e:
    print(f"{e.kind}: {e}")

flights.run(stead.entropy())
print("and again: ok")
