# Two commands are all a newcomer needs: `make run` and `make test`.
# Everything below uses Cargo's own cache; nothing is written outside target/ and the Cargo folders.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# Where `make run` answers; 53 would need permission.
PORT ?= 5300
HTTP_PORT ?= 9153

# Tests at once: half of the time of those with an API server is waiting, for a back-off, a lease or a drain.
TEST_THREADS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))

# For how many seconds `make fuzz` runs each target.
SECONDS ?= 60
FUZZ_TARGETS := query respond history relay

# What `make image` makes, and with what: the first that runs (`docker version` asks its daemon).
IMAGE ?= clusterdns:$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
BUILDER ?= $(shell for it in docker podman buildah; do $$it version >/dev/null 2>&1 && { echo $$it; break; }; done)
BUILD_FLAGS ?=

.PHONY: help run test compares-only node cluster conformance soak lint deny oldest bench bench-default bench-load bench-all miri edits fuzz fuzz-tools fuzz-build $(FUZZ_TARGETS:%=fuzz-%) image manifests charts check-tools crates release workflows

include tests/tools/tools.mk

help:
	@echo "make run    serve crds/examples/quickstart/ on 127.0.0.1:$(PORT), and show the names (Ctrl-C ends)"
	@echo "make test   format check, clippy, cargo-deny if installed, all tests"
	@echo "make node   the chart on a real node: containerd, kubelet, kube-proxy (Linux, root, Go; installs packages; some 3 minutes)"
	@echo "make node RELEASE=x    the same with the chart and the image that make release VERSION=x has made"
	@echo "make cluster  three real nodes: a dead one, drains, scaling, upgrades, with CoreDNS beside (as make node; some 15 minutes)"
	@echo "make cluster FROM=COMMIT  the same, and upgrades from an earlier commit, and back"
	@echo "make conformance  the DNS tests of Kubernetes' own suite, with CoreDNS beside (as make cluster; builds the suite once)"
	@echo "make soak HOURS=4  data planes under faults and changes, replies held against the objects (docs/soak.md; SEED=1;"
	@echo "            PART=scripted|real|both, the control plane: real needs Go, once)"
	@echo "make bench  time answers and changes, in process and over sockets beside other servers (optimised; some 15 minutes)"
	@echo "make bench SET=load  only over sockets, into docs/benchmarks.md; SET=all  everything, with a real API server (an hour)"
	@echo "make miri   the reading of ancillary data under MIRI (needs a nightly toolchain; some minutes)"
	@echo "make deny   licences, sources and live advisories of all crates, by cargo-deny (builds it once; needs its database)"
	@echo "make oldest check that the oldest compiler that Cargo.toml names builds everything (needs rustup; some minutes)"
	@echo "make fuzz   the fuzz targets, $(SECONDS) s each (needs a nightly toolchain and cargo-fuzz); make -j4 fuzz runs them side by side"
	@echo "make edits  a million edits of hostile objects: memory follows what is held (optimised; some minutes)"
	@echo "make charts lint the chart and compare everything made from it; make manifests writes it again (both need Go, once)"
	@echo "make image  build the container image $(IMAGE) with docker, podman or buildah"
	@echo "make release VERSION=x  everything that a release publishes, in target/release-x/ (docs/releasing.md); needs no registry"
	@echo "make workflows  lint .github/workflows with actionlint (needs Go, once)"
	@echo "make tools  build the real kube-apiserver, etcd and helm that some tests run against (needs Go, once)"
	@echo
	@echo "make run PORT=5454 HTTP_PORT=9154 uses other ports."

# Building needs Linux, whose calls the programs use, a Rust toolchain, and the C compiler that some crates use (ring; linking).
check-tools:
	@[ "$$(uname -s)" = Linux ] || { \
	  echo "This is $$(uname -s), and ClusterDNS builds and runs on Linux only: use a Linux machine, virtual machine or container."; exit 1; }
	@command -v cargo >/dev/null 2>&1 || { \
	  echo "There is no cargo: install Rust 1.89 or later from https://rustup.rs, open a new shell, try again."; exit 1; }
	@command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1 || { \
	  echo "There is no C compiler: apt install build-essential, or dnf install gcc."; exit 1; }

# The dependencies of all packages. Tests and benchmarks build the programs while they run, some in a network namespace that
# leads nowhere, and Cargo would not have fetched what only the programs need.
crates: check-tools
	@cargo fetch --quiet --locked

# The development profile: built in a fraction of the time of a release, and fast enough for a laptop.
run: check-tools
	@echo "Building the data plane (the first time takes a minute or two) ..."
	@echo "If a port is taken: make run PORT=5454 HTTP_PORT=9154"
	@cargo build --locked --package dataplane --bin clusterdns-dataplane
	@exec cargo run --quiet --locked --package dataplane --bin clusterdns-dataplane -- \
	  --manifests crds/examples/quickstart --listen 127.0.0.1:$(PORT) --listen "[::1]:$(PORT)" \
	  --http 127.0.0.1:$(HTTP_PORT) --log-level warn --print-names

# Its own containerd, kubelet and kube-proxy, in namespaces of the test: nothing of the machine is set but one cgroup, which
# is removed. Prints what it measured. CLUSTERDNS_TEST_PROXY_MODE=nftables has kube-proxy write its rules so. RELEASE=x takes
# image and chart from what `make release VERSION=x` has left; pods name the image by its digest. All three need root:
# node-packages comes first and says so where it is missing.
RELEASE ?=
node: check-tools crates
	@tests/tools/node-packages
	@tests/tools/build etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm kubelet kube-proxy coredns
	$(if $(RELEASE),CLUSTERDNS_TEST_RELEASE=$(CURDIR)/target/release-$(RELEASE)) \
	  cargo test --quiet --locked --package tests --test node -- --include-ignored --exact on_a_real_node

# The same with a control plane and three nodes, each in a network namespace of its own, and CoreDNS beside. Prints what each
# scenario lost, for docs/availability.md. CLUSTERDNS_TEST_SCENARIOS="frozen partitioned" runs only those. FROM=COMMIT also
# upgrades from the programs and the chart of that commit, and rolls back (scenario "earlier").
FROM ?=
cluster: check-tools crates
	@tests/tools/node-packages
	@tests/tools/build etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm kubelet kube-proxy coredns
	@test -z "$(FROM)" || tests/tools/earlier "$(FROM)"
	$(if $(FROM),CLUSTERDNS_TEST_EARLIER=$(CURDIR)/target/earlier) \
	  cargo test --quiet --locked --package tests --test node -- --include-ignored --exact d8_d9_d10_three_real_nodes_keep_their_dns

# The DNS tests of Kubernetes' own e2e suite on such a cluster: once with CoreDNS, once with ClusterDNS, which takes over from
# it. Compares the outcome with docs/conformance.md; UPDATE_EXPECT=1 writes it there. CLUSTERDNS_TEST_FOCUS=REGEX runs only
# the tests whose names match.
conformance: check-tools crates
	@tests/tools/node-packages conformance
	@tests/tools/build etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm kubelet kube-proxy coredns e2e.test agnhost
	cargo test --quiet --locked --package tests --test node -- --include-ignored --exact the_dns_tests_of_kubernetes_pass

# For how many hours, which faults, and with which control plane (docs/soak.md). Both have half of the time each.
HOURS ?= 4
SEED ?= 1
PART ?= both

soak: check-tools crates $(if $(filter scripted,$(PART)),,tools)
	SOAK_HOURS=$(HOURS) SOAK_SEED=$(SEED) SOAK_PART=$(PART) cargo test --release --quiet --locked --package tests --test soak -- \
	  --include-ignored --exact soak

# In this order: what fails soonest comes first. Without Go, the tests that need a real API server say that they did not
# run; where CI is set, that is a failure.
test: compares-only check-tools lint tools
	@without=$$(tests/tools/test-packages) && \
	  RUST_TEST_THREADS=$(TEST_THREADS) CLUSTERDNS_TEST_WITHOUT="$$without" tests/tools/all-tests

# With this variable tests write what they should compare, and pass.
compares-only:
	@test -z "$${UPDATE_EXPECT:-}" || { echo "make test compares: unset UPDATE_EXPECT, which makes tests write" >&2; exit 1; }

# cargo-deny fetches its database of advisories; where it cannot, its other checks still count.
lint: check-tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings
	@if command -v cargo-deny >/dev/null 2>&1; then \
	  echo cargo deny check && cargo deny --locked check bans licenses sources && \
	  if cargo deny --locked fetch db >/dev/null 2>&1; then cargo deny --locked check advisories; \
	  else echo "cargo-deny cannot fetch its database: only the advisories of .ci/advisories.yaml are checked"; fi; \
	else \
	  echo "cargo-deny is not installed: licences are not checked, and advisories only by .ci/advisories.yaml (cargo install cargo-deny)"; \
	fi

# Rows P1 and P2, with the live database of advisories: fails where cargo-deny, or its database, cannot be had. Built once,
# outside the repository.
DENY := 0.20.2
DENY_ROOT := $(or $(CLUSTERDNS_CACHE),$(HOME)/.cache/clusterdns)/cargo-deny-$(DENY)

deny: check-tools
	@[ -x "$(DENY_ROOT)/bin/cargo-deny" ] || cargo install --quiet --locked --root "$(DENY_ROOT)" cargo-deny@$(DENY)
	PATH="$(DENY_ROOT)/bin:$$PATH" cargo deny --locked check

# Row P8. The minor version alone names its newest patch.
OLDEST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

oldest:
	rustup toolchain install $(OLDEST) --profile minimal
	cargo +$(OLDEST) check --workspace --all-targets --locked

# Which benchmarks: default, load (only the servers side by side, published in docs/benchmarks.md) or all.
SET ?= default
LOAD := cargo bench --locked --package tests --bench load --

# The first says by how much a reply has become dearer since benches/instructions.txt, and fails at +2 %. `scale` needs the
# real API server; CLUSTERDNS_BENCH_SERVICES=1000 makes its cluster smaller. `load` names the servers that are missing.
bench: bench-$(SET)

bench-default: check-tools crates
	cargo bench --locked --package dataplane-core --bench instructions
	cargo bench --locked --package dataplane-core --bench respond
	cargo bench --locked --package dataplane-core --bench cold
	cargo bench --locked --package tests --bench watched
	$(LOAD) --set default

bench-load: check-tools crates
	$(LOAD) --set default --publish

bench-all: check-tools crates tools
	@tests/tools/build coredns
	cargo bench --locked --package dataplane-core --bench instructions
	cargo bench --locked --package dataplane-core --bench respond
	cargo bench --locked --package dataplane-core --bench cold
	cargo bench --locked --package tests --bench watched
	$(LOAD) --set all --rounds 2 --services 1000 --services 10000 --services 100000
	cargo bench --locked --package tests --bench scale
	cargo test --release --locked --package dataplane --test process -- --ignored --exact --nocapture flood::measure_the_flood

# What MIRI can run of the one package with unsafe code; docs/threat-model.md says what it does not see. Needs
# `rustup component add miri rust-src --toolchain nightly`. libc's CMSG macros make pointers of integers.
miri: check-tools
	MIRIFLAGS=-Zmiri-permissive-provenance cargo +nightly miri test --locked --package dataplane-udp --lib control::

# One target after the other; `make -j4 fuzz` runs them side by side, `make fuzz-relay` one. New inputs are kept in
# fuzz/target, so that the committed corpus stays small; an input that breaks a promise is written to fuzz/artifacts.
fuzz: $(FUZZ_TARGETS:%=fuzz-%)

# What the fuzz targets need besides; continuous integration begins with it.
fuzz-tools: check-tools
	rustup toolchain install nightly --profile minimal
	cargo install --locked cargo-fuzz@0.13.2

fuzz-build: check-tools
	cd dataplane/core && cargo +nightly fuzz build

$(FUZZ_TARGETS:%=fuzz-%): fuzz-%: fuzz-build
	@mkdir -p dataplane/core/fuzz/target/found/$*
	cd dataplane/core && cargo +nightly fuzz run $* fuzz/target/found/$* fuzz/corpus/$* -- \
	  -max_total_time=$(SECONDS) -max_len=$(if $(filter relay,$*),65535,4096) -timeout=60 -print_final_stats=1

# A million edits of hostile objects, and whether live memory follows what is held (row L13). `make test` makes 20,000.
edits: check-tools crates
	cargo test --release --locked --package dataplane-core --lib -- --ignored --exact index::edits::l13_a_million_edits_leave_nothing_behind
	cargo test --release --locked --package tests --test it -- --ignored --exact edits::l13_a_million_edits_through_the_writer_leave_nothing_behind

# Any builder of Dockerfiles does; buildah and podman need no daemon.
image:
	@test -n "$(BUILDER)" || { \
	  echo "No docker, podman or buildah runs here: apt install buildah, dnf install buildah, or start the docker daemon."; exit 1; }
	$(BUILDER) build --tag $(IMAGE) --build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null)" $(BUILD_FLAGS) .

# What is made from others: the chart's copy of the CRD, its README, the plain YAML, and what the chart renders to.
manifests: check-tools crates
	@tests/tools/build helm
	UPDATE_EXPECT=1 cargo test --quiet --locked --package tests --test it charts::

charts: check-tools crates
	@tests/tools/build helm
	cargo test --quiet --locked --package tests --test it charts::

# Everything that a release publishes; `make release-STEP VERSION=x` does one step. .ci/release names the steps.
release:
	@.ci/release all "$(VERSION)"

release-%:
	@.ci/release $* "$(VERSION)"

workflows:
	@tests/tools/build actionlint
	@"$$(tests/tools/build --where actionlint)" .github/workflows/*.yml && echo "the workflows have no mistakes that actionlint finds"
