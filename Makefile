# Everything a developer or user types. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PROFILE ?= laptop
CARGO ?= cargo
BINARY := target/$(PROFILE)/mainstay

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: prepare
prepare: ## Install or name what the build needs
	@scripts/prepare

.PHONY: build
build: prepare ## Build bin/mainstay
	@$(CARGO) build --locked --profile $(PROFILE) -p mainstay
	@mkdir -p bin && cp -f $(BINARY) bin/mainstay.new && mv -f bin/mainstay.new bin/mainstay

.PHONY: up
up: build ## Build, start everything in the background, run the help desk example
	@bin/mainstay up --detach --restart examples/helpdesk

.PHONY: down
down: ## Stop what `make up` started
	@bin/mainstay down

.PHONY: test
test: prepare ## Rungs 1 to 3: unit, in process, whole binary
	@$(CARGO) test --locked --workspace

.PHONY: test-nightly
test-nightly: prepare ## What `make test` does in small: kill -9 and power cuts at two thousand points
	@MAINSTAY_KILL_POINTS=2000 $(CARGO) test --locked -p mainstay-store --test crash
	@MAINSTAY_KILL_POINTS=2000 $(CARGO) test --locked -p mainstay --test whole_binary -- kills power_cuts

.PHONY: test-peers
test-peers: build ## Rung 4: programs by other people against ours
	@tests/peers/run

.PHONY: lint
lint: prepare ## Formatting, clippy
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

.PHONY: generate
generate: prepare ## Write the generated files anew
	@$(CARGO) run --locked -q -p xtask -- generate

.PHONY: check-generated
check-generated: prepare ## Fail when a generated file is not current
	@$(CARGO) run --locked -q -p xtask -- generate --check

.PHONY: bench
bench: build ## The figures of benches/RESULTS.md
	@benches/run

.PHONY: fuzz
fuzz: ## Feed the parsers with noise; SECONDS_EACH or RUNS_EACH bounds each target
	@fuzz/run

.PHONY: test-cluster
test-cluster: prepare ## Rung 5: the embedded API beside a real API server
	@tests/reference/run

.PHONY: test-conformance
test-conformance: prepare ## Kubernetes' own tests of the API against the embedded one; PARTS=… chooses some by their names
	@tests/reference/e2e/run $(PARTS)

.PHONY: reference-tools
reference-tools: ## Build the reference's programs and what clients are tried with: kubectl, Helm 3 (helm), Helm 4 (helm4), Go
	@tests/reference/build etcd kube-apiserver kube-controller-manager kubectl helm3 helm4 go-clients

.PHONY: reference-tools-all
reference-tools-all: ## Build every program of the reference rung
	@tests/reference/build --all

.PHONY: reference-path
reference-path: ## Print the folder that holds the programs of the reference
	@tests/reference/build --path
