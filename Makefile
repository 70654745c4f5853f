# Carillon: every habit of the project is a target here; `make help` explains them.
SHELL := /usr/bin/env bash
.DEFAULT_GOAL := help

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# Tools are built once, outside the clone, at pinned versions.
CACHE ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/carillon
TOOLS := $(CACHE)/tools
CONTROLLER_GEN_VERSION := v0.23.0
HELM_VERSION := v4.3.1
STATICCHECK_VERSION := v0.8.2
GOVULNCHECK_VERSION := v1.9.0
# The reports of known vulnerabilities; VULNDB_VERSION=latest takes the newest ones.
VULNDB_VERSION ?= v0.0.0-20261105234957-e22db6528018
NATS_SERVER_VERSION := v2.15.2
NATS_CLI_VERSION := v0.5.1
CONTROLLER_GEN := $(TOOLS)/controller-gen@$(CONTROLLER_GEN_VERSION)
HELM := $(TOOLS)/helm@$(HELM_VERSION)
STATICCHECK := $(TOOLS)/staticcheck@$(STATICCHECK_VERSION)
GOVULNCHECK := $(TOOLS)/govulncheck@$(GOVULNCHECK_VERSION)
VULNDB := $(CACHE)/vulndb@$(VULNDB_VERSION)
NATS_SERVER := $(TOOLS)/nats-server@$(NATS_SERVER_VERSION)
NATS_CLI := $(TOOLS)/nats@$(NATS_CLI_VERSION)

# install-tool builds $(1) and names the result after its version, so that a new pin is a new file.
define install-tool
@mkdir -p $(TOOLS)
into=$$(mktemp -d $(TOOLS)/build.XXXXXX) && trap 'rm -rf "$$into"' EXIT && \
GOBIN=$$into GOFLAGS=-buildvcs=false CGO_ENABLED=0 $(GO) install -ldflags '-s -w' $(1) && \
mv "$$into/$(firstword $(subst @, ,$(notdir $@)))" $@
endef

##@ Build

.PHONY: build
build: ## Build bin/carillon for this machine
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/carillon ./cmd/carillon

.PHONY: dist
dist: ## Build the static binaries for the images: dist/linux/{amd64,arm64}/carillon
	for arch in amd64 arm64; do CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o dist/linux/$$arch/carillon ./cmd/carillon || exit 1; done
	cp Dockerfile dist/Dockerfile

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Write what controller-gen makes: deepcopy, apply configurations, CRDs, RBAC
	hack/generate $(CONTROLLER_GEN)

##@ Check

.PHONY: test
test: $(HELM) test-assets ## Run every test that needs no root
	HELM=$(HELM) hack/test

.PHONY: test-assets
test-assets: ## Build the API server and etcd that the controller tests run (slow the first time)
	hack/cluster/cluster build-assets

.PHONY: test-e2e
# One world of test/chaos, always with the same faults: new ones are for people with the time
# to look into what they find. In this one a disk hangs and its leadership is handed over, another time it
# fails and recovers; brokers are killed, a bit flips, the folder of a log is deleted, the power
# fails, links are narrow, disks are full, a broker joins and another one goes, and all are started
# again.
test-e2e: export CHAOS_SEED ?= 2785108
test-e2e: TIME ?= 10s
test-e2e: test-durability test-chaos-processes $(HELM) ## Run the end-to-end tests: on real disks, and on a local cluster (takes root)
	HELM=$(HELM) test/e2e/run

.PHONY: test-durability
test-durability: ## Of these, the disks: cut power, fill, fail, flip, kill (Linux; takes root)
	test/durability/run

.PHONY: test-cluster
test-cluster: ## Try what the local cluster promises: cut, heal, kill, start, remove (takes root)
	test/cluster/run

.PHONY: test-chaos
test-chaos: ## Run simulated clusters through faults for as long as it is told to (TIME=10m)
	CARILLON_CHAOS=$(or $(TIME),10m) $(GO) test -count=1 -timeout 0 -run TestWorlds -v ./test/world

.PHONY: test-world-judge
test-world-judge: ## Prove the judge of test/world: brokers without a rule have to be found out (a build and a minute each)
	CARILLON_JUDGE=all $(GO) test -count=1 -timeout 0 -run TestTheJudgeFindsAMissingRule -v ./test/world

.PHONY: test-chaos-processes
test-chaos-processes: ## The same with real processes, networks and disks (Linux; takes root; TIME=10m)
	TIME=$(or $(TIME),1m) test/chaos/run

.PHONY: test-chaos-judge
test-chaos-judge: ## Prove the judge of that: brokers without an invariant have to be found out (Linux; takes root; 9 minutes)
	CHAOS_RUN=TestTheJudgeFindsAMissingInvariant test/chaos/run

.PHONY: test-upgrade
test-upgrade: ## A rolling change from the version before (OLD=COMMIT of this clone; 5185afac has live queries and Views), under load, live queries and kills, nothing lost (Linux; takes root; 3 minutes)
	test/chaos/upgrade

.PHONY: soak
soak: ## Bound descriptors, goroutines and memory of real brokers under faults (Linux; takes root; TIME=30m)
	TIME=$(or $(TIME),30m) CHAOS_RUN='^TestASoakStaysBounded$$' test/chaos/run

.PHONY: soak-judge
soak-judge: ## Prove the judge of the soak: brokers that leak have to be found out (Linux; takes root; 2 minutes)
	CHAOS_RUN='^TestTheSoakFindsALeak$$' test/chaos/run

.PHONY: test-clients
test-clients: build $(NATS_SERVER) $(NATS_CLI) ## Tours of clients in other languages, from their registries, at nats-server and here (5 minutes; TOURS='cli python'), then test-duckdb
	NATS_SERVER=$(NATS_SERVER) NATS_CLI=$(NATS_CLI) CACHE=$(CACHE)/clients test/compat/clients/run $(TOURS)
	$(if $(TOURS),,$(MAKE) test-duckdb)

.PHONY: test-duckdb
test-duckdb: build ## DuckDB, from PyPI, reads the Parquet files of carillon query (10 s)
	CACHE=$(CACHE)/clients test/compat/duckdb/run

.PHONY: test-hostile
test-hostile: build $(NATS_SERVER) ## Attack brokers beside a bystander, and measure how it fares (Linux; takes root; 1 to 3 hours; HOSTILE=REGEXP)
	HOSTILE_PROGRAM=$(CURDIR)/bin/carillon NATS_SERVER=$(NATS_SERVER) HOSTILE='$(HOSTILE)' $(GO) test -tags e2e -count=1 -timeout 0 -v -run '^TestBystandersAreUnharmed$$' ./test/hostile

.PHONY: lint
lint: $(STATICCHECK) ## gofmt, go vet, staticcheck, shell syntax
	hack/lint $(STATICCHECK)

.PHONY: check-vulnerabilities
check-vulnerabilities: ## Fail if the code calls what is known to be vulnerable (VULNDB_VERSION=latest)
	hack/check-vulnerabilities $(GOVULNCHECK) $(VULNDB_VERSION) $(VULNDB)

.PHONY: check-generated
check-generated: generate ## Fail if generated files are not up to date
	hack/check-generated

.PHONY: bench
bench: ## Run the Go benchmarks beside the code
	$(GO) test -run '^$$' -bench . -benchmem ./broker/...

.PHONY: bench-core
bench-core: build $(NATS_SERVER) ## Compare throughput, requests and memory of connections with nats-server's (7 minutes; ARGS=...)
	NATS_SERVER=$(NATS_SERVER) bench/scripts/core $(ARGS)

.PHONY: bench-durable
bench-durable: build $(NATS_SERVER) ## Compare durable publishing with nats-server's, on the disk of this folder (6 minutes; ARGS=...)
	NATS_SERVER=$(NATS_SERVER) bench/scripts/durable $(ARGS)

.PHONY: bench-replicated
bench-replicated: build $(NATS_SERVER) ## The same on clusters of three, on 1 and 3 replicas (10 minutes; ARGS=...)
	NATS_SERVER=$(NATS_SERVER) bench/scripts/replicated $(ARGS)

.PHONY: bench-failover
bench-failover: build $(NATS_SERVER) ## Kill leaders, of carillon's streams and of nats-server's, and see for how long acks stop (8 minutes; ARGS=...)
	NATS_SERVER=$(NATS_SERVER) bench/scripts/failover $(ARGS)

.PHONY: bench-faults
bench-faults: build ## As root on Linux: the same with brokers cut off, paused, with their node, and with etcd's leader or quorum gone (25 minutes; ARGS=...)
	bench/scripts/faults $(ARGS)

.PHONY: bench-shards
bench-shards: build ## As root on Linux: what 10,000 shards on three brokers cost (3 minutes; ARGS=...)
	bench/scripts/shards $(ARGS)

.PHONY: bench-consume
bench-consume: build $(NATS_SERVER) ## Compare consumers that take and ack with nats-server's (6 minutes; BROKERS=3 for clusters; ARGS=...)
	NATS_SERVER=$(NATS_SERVER) bench/scripts/consume $(ARGS)

.PHONY: bench-idle
bench-idle: build $(NATS_SERVER) ## What 10,000 consumers cost that nobody uses, beside nats-server's (6 minutes; ARGS=...)
	NATS_SERVER=$(NATS_SERVER) bench/scripts/idle $(ARGS)

.PHONY: bench-kv
bench-kv: build $(NATS_SERVER) ## Compare a key-value bucket with nats-server's (5 minutes; BROKERS=3 for clusters; ARGS=...)
	NATS_SERVER=$(NATS_SERVER) bench/scripts/kv $(ARGS)

.PHONY: bench-log
bench-log: build ## Small records through one shard, beside Kafka and in turn with it (3 minutes; ARGS=--install gets Java)
	bench/scripts/log $(ARGS)

.PHONY: bench-kafka
bench-kafka: ## Kafka's figures for small records on one partition in memory (3 minutes; ARGS=--install gets Java)
	bench/scripts/kafka $(ARGS)

##@ Local cluster

.PHONY: cluster-up
cluster-up: ## Start a three-node Kubernetes on this machine (Linux; takes root)
	hack/cluster/up

.PHONY: cluster-down
cluster-down: ## Remove the local cluster and everything it made
	hack/cluster/down

.PHONY: image
image: ## Build the image as an archive, tagged by its content; prints its name
	hack/image

.PHONY: cluster-load
cluster-load: ## Build the image and put it onto every node of the local cluster
	hack/image --load

.PHONY: demo
demo: $(HELM) ## From nothing to latency percentiles in a real cluster on this machine
	HELM=$(HELM) hack/demo

##@ Tools

$(CONTROLLER_GEN):
	$(call install-tool,sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION))
$(HELM):
	$(call install-tool,helm.sh/helm/v4/cmd/helm@$(HELM_VERSION))
$(STATICCHECK):
	$(call install-tool,honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION))
$(GOVULNCHECK):
	$(call install-tool,golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION))
$(NATS_SERVER):
	$(call install-tool,github.com/nats-io/nats-server/v2@$(NATS_SERVER_VERSION))
$(NATS_CLI):
	$(call install-tool,github.com/nats-io/natscli/nats@$(NATS_CLI_VERSION))

.PHONY: tools
tools: $(CONTROLLER_GEN) $(HELM) $(STATICCHECK) ## Build the pinned tools into the cache

.PHONY: peers
peers: $(NATS_SERVER) ## Build the servers that benchmarks compare with; prints their paths
	@echo $(NATS_SERVER)

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
