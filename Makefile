# Two commands on a fresh Debian or Ubuntu machine with a Rust toolchain and Python:
#   make demo   set up, build, fetch real data, run the main job on it
#   make test   set up, run every check and test
.PHONY: help demo test test-all lint fuzz fmt docs site bench bench-tools bench-reading bench-staging bench-active bench-streams crashes install clean

SECONDS ?= 60
KILLS ?= 1000
PREFIX ?= /usr/local

help:
	@echo 'make demo              set up, build, run the main job on real data'
	@echo 'make test              set up, run every check and test'
	@echo 'make test-all          the same with more property cases, emulated processors, fuzzing, cargo-deny'
	@echo 'make lint              formatting, clippy, house rules'
	@echo 'make fuzz SECONDS=60   run each fuzz target for so long'
	@echo 'make bench             measure beside other tools; tables go to bench/runs'
	@echo 'make bench-tools       of that, scans; also if BENCH names a part'
	@echo 'make bench-reading     of that, read sessions'
	@echo 'make bench-staging     of that, transfers'
	@echo 'make bench-active      of that, computing near the data over hosts of the lab; needs root and Open MPI'
	@echo 'make bench-streams     of that, streams between programs'
	@echo 'make crashes KILLS=1000   kill transfers and daemons so often, and keep a record in bench/runs'
	@echo 'make docs              write docs/kernels.md anew from the command'
	@echo 'make site              build the site of the documents in .build/site'
	@echo 'make install PREFIX=/usr/local   install the command, the C and C++ libraries, man pages'
	@echo '                       MPI=1: libstead_mpi, too, and a command for ranks, built with MPICC=mpicc'
	@echo 'make clean             remove all that was built or fetched'

demo:
	@scripts/demo.sh

test:
	@scripts/test.sh

test-all:
	@scripts/test.sh all

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo xtask tidy

fmt:
	cargo fmt --all

docs:
	@scripts/setup.sh demo
	cargo build -p stead-cli
	.build/venv/bin/python tests/docs/kernels_page.py --write

site:
	@scripts/setup.sh test
	NO_MKDOCS_2_WARNING=1 .build/venv/bin/mkdocs build --strict --quiet
	cargo doc --workspace --no-deps --locked
	cp -r $${CARGO_TARGET_DIR:-target}/doc .build/site/rust
	@echo 'open .build/site/index.html'

fuzz:
	@scripts/fuzz.sh $(SECONDS)

bench: bench-tools
	$(if $(BENCH),,$(MAKE) bench-reading)
	$(if $(BENCH),,$(MAKE) bench-staging)
	$(if $(BENCH),,$(MAKE) bench-active)
	$(if $(BENCH),,$(MAKE) bench-streams)

bench-tools:
	@scripts/setup.sh bench
	cargo build --release --locked -p stead-cli -p stead-bench
	.build/venv/bin/python -m venv .build/bench/venv
	.build/bench/venv/bin/python -m pip install --quiet --requirement bench/requirements.txt
	.build/bench/venv/bin/python bench/run.py target/release/stead .build/bench bench/runs $(BENCH)

bench-reading:
	@scripts/setup.sh test
	cargo build --release --locked -p stead-cli -p stead-bench -p stead-capi
	! command -v mpicc >/dev/null || PROFILE=release scripts/mpi.sh openmpi
	scripts/python.sh
	.build/venv/bin/python bench/reading.py target/release/stead .build/bench bench/runs $(BENCH)

# Of the system's packages PySpark needs Java 17 or newer. Small asks are made by the Python package, over each MPI.
bench-staging:
	@scripts/setup.sh bench
	cargo build --release --locked -p stead-cli -p stead-bench
	.build/venv/bin/python bench/staging.py target/release/stead .build/bench bench/runs $(BENCH)

bench-active:
	@scripts/setup.sh test
	MPICC=$$(command -v mpicc.openmpi || echo mpicc) \
	  cargo build --release --locked -p stead-cli -p stead-bench --features stead-cli/mpi
	PROFILE=release scripts/mpi.sh
	scripts/python.sh
	.build/venv/bin/python -m venv .build/bench/venv
	.build/bench/venv/bin/python -m pip install --quiet --requirement bench/requirements.txt
	.build/bench/venv/bin/python bench/active.py target/release/stead-mpi .build/bench bench/runs \
	  --python .build/venv/bin/python $(BENCH)

# What is beside stead runs with the Python that has it.
bench-streams:
	@scripts/setup.sh test
	@scripts/setup.sh bench
	cargo build --release --locked -p stead-cli -p stead-capi
	! command -v mpicc >/dev/null || PROFILE=release COMMANDS=all scripts/mpi.sh openmpi
	scripts/python.sh
	.build/venv/bin/python -m venv .build/bench/venv
	.build/bench/venv/bin/python -m pip install --quiet --requirement bench/requirements.txt
	.build/venv/bin/python bench/streams.py target/release/stead .build/bench bench/runs --peers .build/bench/venv/bin/python $(BENCH)

# With assertions, as the tests are built.
crashes:
	@scripts/setup.sh test
	cargo build --workspace --locked
	scripts/python.sh dev
	.build/venv/bin/python bench/crashes.py target/debug/stead bench/runs --kills $(KILLS)

# Where from and how: scripts/install.sh.
install:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' MPI='$(MPI)' MPICC='$(MPICC)' scripts/install.sh

clean:
	rm -rf .build target fuzz/target fuzz/corpus fuzz/artifacts
