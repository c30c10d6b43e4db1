# Builds, tests, installs. `make help` lists the targets.

CARGO   ?= cargo
CARGO_TARGET_DIR ?= $(CURDIR)/target
DISQUE_C ?=
export CARGO_TARGET_DIR DISQUE_C

PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
SYSCONFDIR ?= $(PREFIX)/etc/disque
DOCDIR     ?= $(PREFIX)/share/doc/disque
# Where an installed server keeps its files, and the user that it runs as, if there is one.
DATADIR    ?= $(PREFIX)/var/lib/disque
SERVICE_USER ?=
DESTDIR    ?=
INSTALL    ?= install

# The allocator: jemalloc, or libc for the system's own.
MALLOC ?= jemalloc
ifeq ($(MALLOC),jemalloc)
FEATURES =
else ifeq ($(MALLOC),libc)
FEATURES = --no-default-features --features tools
else
$(error MALLOC is jemalloc or libc, not $(MALLOC))
endif

# What the version line and INFO say of the source; nothing outside a checkout.
export DISQUE_GIT_SHA1  ?= $(shell git rev-parse --short=8 HEAD 2>/dev/null)
export DISQUE_GIT_DIRTY ?= $(if $(DISQUE_GIT_SHA1),$(shell git diff --quiet HEAD -- src && echo 0 || echo 1))

BUILD    = --release --locked $(FEATURES)
BINARIES = disque-server disque disque-check-aof disque-benchmark
SERVER   = $(CARGO_TARGET_DIR)/release/disque-server

.PHONY: all
all: ## Build the binaries into target/release
	$(CARGO) build $(BUILD) --bins

.PHONY: run
run: ## Start a server on port 7711; ARGS="--port 7712" adds options
	$(CARGO) run $(BUILD) --bin disque-server -- $(ARGS)

# Tests run with sums checked for overflow. The budget counts the instructions of a release, and
# the client libraries talk to one.
CHECKED = --profile checked --locked $(FEATURES)

.PHONY: test
test: test-cargo ## Run every test, other people's client libraries included
	tests/clients/run $(SERVER)

.PHONY: test-cargo
test-cargo: all ## Run every test of cargo
	$(CARGO) test $(CHECKED)
	DISQUE_SERVER=$(SERVER) $(CARGO) test $(CHECKED) --test budget

# The tests are those of test-cargo; only the server is another one.
POLL_SERVER = $(CARGO_TARGET_DIR)/poll/checked/disque-server

.PHONY: test-poll
test-poll: ## Test a server on poll(2) in place of epoll and on the system's allocator
	RUSTFLAGS='--cfg mio_unsupported_force_poll_poll' CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/poll \
		$(CARGO) build --profile checked --locked --no-default-features --bin disque-server
	DISQUE_SERVER=$(POLL_SERVER) $(CARGO) test $(CHECKED) --test integration --test cli --test rust_clients
	tests/clients/run --only "redis-py 8" --only ioredis $(POLL_SERVER)

.PHONY: sim
sim: ## Run the simulator; SEED=n repeats one run, SEEDS=n asks for that many
	$(CARGO) test $(BUILD) --test simulation -- --nocapture

DIGEST ?= $(CARGO_TARGET_DIR)/digest

.PHONY: digest
digest: ## Record in DIGEST what every run of the simulator comes to; SEEDS=n as for sim
	RECORD_DIGEST=$(DIGEST) $(CARGO) test $(BUILD) --test simulation

.PHONY: same-digest
same-digest: ## Fail unless every run of the simulator is the one recorded in DIGEST
	COMPARE_DIGEST=$(DIGEST) $(CARGO) test $(BUILD) --test simulation

.PHONY: sim-scale
sim-scale: ## Print how clusters of NODES=3,10,30,100,500 form, find a dead node, heal and keep quiet
	SCALE=$${NODES:-3,10,30,100,500} $(CARGO) test $(BUILD) --test simulation -- --nocapture a_large_cluster

# Of the changes that cargo-mutants knows to make, one in 110 is 30: some hours of work.
MUTANTS ?= 0/110
MUTANTS_IN ?= src/engine src/store src/server
CARGO_MUTANTS = $(CARGO_TARGET_DIR)/tools/bin/cargo-mutants
# Slow tests that say little of a single change.
MUTANTS_SKIP = a_million_damaged ten_thousand while_the_file_is_loaded a_large_cluster

$(CARGO_MUTANTS):
	$(CARGO) install --locked --root $(CARGO_TARGET_DIR)/tools cargo-mutants

.PHONY: mutants
mutants: $(CARGO_MUTANTS) ## Break the code in one way after the other and see what no test notices; MUTANTS=7/110 picks others
	CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/mutants/build CARGO_INCREMENTAL=1 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
	CARGO_PROFILE_RELEASE_DEBUG=0 SEEDS=100 \
	$(CARGO_MUTANTS) mutants $(MUTANTS_IN:%=--file '%/**') --shard $(MUTANTS) --sharding round-robin \
		--output $(CARGO_TARGET_DIR)/mutants --profile release --caught \
		-- --locked --lib --test simulation --test integration --test power_loss -- $(MUTANTS_SKIP:%=--skip %)

.PHONY: power-loss
power-loss: ## Start servers on what losses of power leave of a disk; POINTS=n losses a run, SEED=n repeats one
	POINTS=$${POINTS:-1000} $(CARGO) test $(BUILD) --test power_loss

.PHONY: bench
bench: all ## Measure beside the C server at DISQUE_C, Redis and beanstalkd; ARGS=--list
	bench/compare $(ARGS)

.PHONY: fmt
fmt: ## Format the sources
	$(CARGO) fmt

.PHONY: lint
lint: ## Check formatting and run clippy, warnings as errors
	$(CARGO) fmt --check
	$(CARGO) clippy $(CHECKED) --all-targets -- -D warnings

.PHONY: check
check: lint test-cargo ## Everything short of the client libraries: lint and cargo's tests

# What the C server answers is the reference; DISQUE_C is the path of its binary.
.PHONY: test-oracle
test-oracle: ## Run the client tests against the C server at DISQUE_C
	@test -x "$(DISQUE_C)" || { echo "DISQUE_C=path of a C disque-server, please" >&2; exit 2; }
	DISQUE_SERVER=$(abspath $(DISQUE_C)) $(CARGO) test $(BUILD) --test rust_clients
	tests/clients/run --peer c $(DISQUE_C)

.PHONY: test-compat
test-compat: all ## Run the C server's Tcl suite on ours; DISQUE_SRC=checkout, MODE=mixed for a cluster of both
	@test -x "$(DISQUE_SRC)/src/disque-server" || { echo "DISQUE_SRC=path of a built checkout of the C server, please" >&2; exit 2; }
	tests/compat/run $(SERVER) $(DISQUE_SRC) $(MODE)

.PHONY: test-mixed
test-mixed: all ## Test a cluster of C nodes and ours; DISQUE_C=path of the C server
	@test -x "$(DISQUE_C)" || { echo "DISQUE_C=path of a C disque-server, please" >&2; exit 2; }
	tests/compat/mixed $(SERVER) $(DISQUE_C)

.PHONY: test-network
test-network: all ## Test nodes in network namespaces whose packets are lost; wants nft, ip and unshare
	tests/network/run $(SERVER)

.PHONY: test-zones
test-zones: all ## Measure nodes in zones 1 ms and 40 ms apart; JOBS=n; wants ip, unshare and /dev/net/tun
	tests/network/zones $(SERVER) $(JOBS)

.PHONY: install
install: all ## Install binaries, configuration and documents under PREFIX; SERVICE_USER=name owns the data
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(SYSCONFDIR)" "$(DESTDIR)$(DOCDIR)"
	$(INSTALL) -d -m 750 "$(DESTDIR)$(DATADIR)"
	for name in $(BINARIES); do \
		$(INSTALL) -m 755 "$(CARGO_TARGET_DIR)/release/$$name" "$(DESTDIR)$(BINDIR)/$$name" || exit 1; \
	done
	test -e "$(DESTDIR)$(SYSCONFDIR)/disque.conf" || { \
		$(INSTALL) -m 640 /dev/null "$(DESTDIR)$(SYSCONFDIR)/disque.conf" && \
		sed 's|^# dir .*|dir "$(DATADIR)"|' conf/disque.conf >"$(DESTDIR)$(SYSCONFDIR)/disque.conf"; \
	}
	test -z "$(SERVICE_USER)" || chown "$(SERVICE_USER):" "$(DESTDIR)$(DATADIR)" "$(DESTDIR)$(SYSCONFDIR)/disque.conf"
	$(INSTALL) -m 644 README.md CHANGELOG.md LICENSE conf/disque.conf "$(DESTDIR)$(DOCDIR)"

# Where packages and releases are put.
OUTPUT ?= $(CARGO_TARGET_DIR)/packages

.PHONY: deb
deb: all ## Build a Debian package into target/packages
	mkdir -p "$(OUTPUT)"
	conf/debian/build "$(CARGO_TARGET_DIR)/release" "$(OUTPUT)"

# Paths of the machine are left out, so that two machines with the same tools make the same bytes.
.PHONY: dist
dist: ## Build a release into target/packages: archives, bill of materials, checksums
	mkdir -p "$(OUTPUT)"
	CARGO_INCREMENTAL=0 CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/dist" \
	RUSTFLAGS="--remap-path-prefix=$(CURDIR)=/source --remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=/cargo" \
		$(CARGO) build $(BUILD) --bins
	conf/dist/build "$(CARGO_TARGET_DIR)/dist/release" "$(OUTPUT)"

.PHONY: container
container: ## Build the image of a container, with docker or CONTAINER=podman
	$(CONTAINER) build -f conf/container/Dockerfile -t disque:$$(sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml | head -n 1) .

CONTAINER ?= docker

.PHONY: test-packages
test-packages: all ## Test units, packages, the container's entry, Kubernetes manifests and releases
	tests/clients/run --only packages $(SERVER)

.PHONY: uninstall
uninstall: ## Remove what install put there, but for the configuration
	for name in $(BINARIES); do rm -f "$(DESTDIR)$(BINDIR)/$$name"; done
	rm -rf "$(DESTDIR)$(DOCDIR)"

.PHONY: clean
clean: ## Remove everything built
	$(CARGO) clean

.PHONY: distclean
distclean: clean

.PHONY: help
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
