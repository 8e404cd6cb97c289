//! Streams: programs hand arrays to each other in memory, step by step.
