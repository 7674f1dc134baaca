# Waterclock's tasks; `make` alone lists them. What a task needs is built from the modules pinned in tools/ into .cache/bin, once.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

CACHE := .cache/bin
PINNED := tools/go.mod tools/go.sum
PROTO_TOOLS := $(CACHE)/buf $(CACHE)/protoc-gen-go $(CACHE)/protoc-gen-connect-go
ARGS ?=
# Without debugging data a first build takes a fifth less time; stack traces do not need them. For a debugger: make build BUILD_FLAGS=
BUILD_FLAGS ?= -gcflags=all=-dwarf=false -ldflags='-s -w'

# The compiler collects its garbage less often: a first build takes a quarter less processor time, and the largest packages a gigabyte of memory.
GO_BUILD := CGO_ENABLED=0 GOGC=400 go build $(BUILD_FLAGS)

# The longest chains of packages, named so that a first build begins with them: else they come last and leave processors idle for some seconds.
LONGEST := modernc.org/sqlite github.com/nats-io/nats-server/v2/server ./cmd/waterclock/internal/serve ./cmd/waterclock/internal/cli

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## Start everything in one process (ARGS="--http 127.0.0.1:8080" is handed on)
	@exec bin/waterclock dev $(ARGS)

.PHONY: build
build: ## Build bin/waterclock
	@$(if $(wildcard bin/waterclock),,echo 'Building everything for the first time takes about a minute.' >&2; $(GO_BUILD) $(LONGEST);)\
	$(GO_BUILD) -o bin/waterclock ./cmd/waterclock

.PHONY: test
test: ## Run all tests, with PostgreSQL and the race detector where they can be had
	@scripts/test $(ARGS)

.PHONY: check
check: $(PROTO_TOOLS) $(CACHE)/golangci-lint $(CACHE)/govulncheck ## Everything but the tests: format, lint, imports, generated code, modules, vulnerabilities
	@scripts/check

.PHONY: lint
lint: $(CACHE)/golangci-lint ## Format and lint rules alone, forbidden imports among them
	@$(CACHE)/golangci-lint run ./...

.PHONY: generate
generate: $(PROTO_TOOLS) ## Write the Go code of proto/ anew
	@scripts/protos generate

.PHONY: bench-smoke
bench-smoke: build ## A short measurement of start lag, idle CPU and memory; fails only where a run starts early
	@scripts/bench-smoke

.PHONY: bench
bench: build ## Measure side by side with River, Asynq and two floors: the short form, about 10 minutes
	@scripts/bench -short

.PHONY: bench-full
bench-full: build ## The same in full, about an hour
	@scripts/bench

.PHONY: chaos
chaos: ## Bring faults upon real processes under load, and check what they promise (STORE=sqlite|postgres, FOR=10m, SEED=, FAULTS=, MOST=)
	@scripts/chaos

.PHONY: chaos-short
chaos-short: ## The same for a minute each on a single host and on a cluster, with a fresh seed
	@scripts/chaos short

.PHONY: smoke
smoke: ## Build the binary, start it, run one job through it, stop it
	@scripts/smoke

.PHONY: clean
clean: ## Remove what was built (bin and .cache)
	@rm -rf bin .cache

# A tool is built again only when its pin changes; touch, because go build leaves an up-to-date file's time alone.
$(CACHE)/buf: PACKAGE := github.com/bufbuild/buf/cmd/buf
$(CACHE)/protoc-gen-go: PACKAGE := google.golang.org/protobuf/cmd/protoc-gen-go
$(CACHE)/protoc-gen-connect-go: PACKAGE := connectrpc.com/connect/cmd/protoc-gen-connect-go
$(CACHE)/golangci-lint: PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(CACHE)/govulncheck: PACKAGE := golang.org/x/vuln/cmd/govulncheck
$(CACHE)/%: $(PINNED)
	@echo "building $* (once)"
	@mkdir -p $(CACHE)
	@go -C tools build -o ../$@ $(PACKAGE)
	@touch $@
