# Targets for people: `make help`.
GO      ?= go
# The version is the tag's; without one, one that sorts by the commit's time and before every release.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || \
	TZ=UTC git show --no-patch --date=format-local:%Y%m%d%H%M%S --format=0.0.0~%cd.%h 2>/dev/null || echo 0.0.0~dev)
LDFLAGS  = -s -w -X main.version=$(VERSION)
LINT     = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
export CGO_ENABLED = 0

.DEFAULT_GOAL := help
.PHONY: help build demo cluster test torture test-vm test-arm64 test-cluster test-machines test-release bench lint fmt dist clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/nodegate, one static binary
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/nodegate ./cmd/nodegate

demo: build ## install into a throwaway root; plan, apply and check in a scratch namespace
	$(GO) run ./internal/demo bin/nodegate

cluster: build ## a Kubernetes cluster of this machine's own, two nodes behind nodegate; lives until ctrl-D ({images,internal/e2e}/*/apt-packages)
	$(GO) build -o bin/pod ./internal/e2e/cluster/pod
	$(GO) run ./internal/e2e/cluster/up bin/nodegate bin/pod

# Twice as many packages as processors: their tests wait more than they compute.
test: ## everything that needs no virtual machine (as root, also the real kernel in namespaces)
	$(GO) test -p $$((2 * $$(nproc))) ./...

torture: build ## the real binary killed, starved and lied to, with counts: two minutes, LONG=1 an hour (root; internal/e2e/torture/apt-packages)
	LONG='$(LONG)' $(GO) test -tags torture -count=1 -timeout $(if $(LONG),120m,20m) -v ./internal/e2e/torture/

# Three machines for two processors: with two, a fifth of the processors was idle.
test-vm: ## boot real Debian nodes in QEMU (needs the packages in internal/e2e/vm/apt-packages)
	$(GO) test -tags vm -count=1 -timeout 80m -v -parallel $$(($$(nproc) * 3 / 2)) -skip 'TestARM64|TestBootCost' ./internal/e2e/vm/

test-arm64: ## an emulated arm64 node; its image takes minutes to build
	$(GO) test -tags vm -count=1 -timeout 40m -v -run TestARM64 ./internal/e2e/vm/

bench: build ## a shell script, goss and the floor; audit, iptables-save and probe; the boot cost, native and in the VM. OLD=BINARY runs beside it
	$(GO) run ./internal/bench bin/nodegate $(OLD)
	$(GO) test -run "^$$" -bench . -benchtime 10x ./checks/catalog ./internal/proxyrules ./internal/host/netns ./checks/datapath ./cmd/nodegate/internal/preview
	BINARIES="$(CURDIR)/bin/nodegate $(OLD)" $(GO) test -run "^$$" -bench . -benchtime 3x -timeout 30m ./internal/host/nftables
	$(GO) test -exec "unshare --net" -run "^$$" -bench . -benchtime 1000x ./cmd/nodegate/internal/watch
	$(GO) run ./internal/bench/idle bin/nodegate
	@if command -v qemu-system-x86_64 >/dev/null; then \
		$(GO) test -tags vm -run '^$$' -bench NativeBoot -benchtime 20x ./internal/e2e/vm/ && \
		$(GO) test -tags vm -count=1 -run TestBootCost -v ./internal/e2e/vm/; fi

lint: ## gofmt, go vet, golangci-lint and the list of words; findings fail
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./... && $(GO) vet -tags vm,release,cluster,torture ./images/... ./internal/e2e/...
	@$(GO) run ./internal/words $$(git ls-files '*.go' | grep -vE 'testdata/|_test\.go') README.md docs/*.md docs/guides/*.md
	$(GO) run $(LINT) run --build-tags vm,release,cluster,torture ./...
	@if command -v packer >/dev/null; then packer fmt -check packer.pkr.hcl; else echo "no packer: its template is not checked"; fi

fmt: ## format the Go files, and group their imports
	gofmt -w $$(git ls-files '*.go')
	$(GO) run $(LINT) fmt

dist: ## binaries, packages, image, SBOMs and their sums in dist/; signed where NODEGATE_SIGNING_KEY names a key
	@rm -rf dist
	@VERSION='$(VERSION)' $(GO) run ./images/release dist

test-cluster: ## a real control plane, kube-proxy and kubelet ({images,internal/e2e}/*/apt-packages); LONG=1 for ten minutes of motion a backend
	LONG='$(LONG)' $(GO) test -tags cluster -count=1 -timeout 120m -v -skip TestScenarios ./internal/e2e/cluster/

test-machines: ## the same, and two machines in QEMU that join it; SCENARIO='same-node|held' for some of internal/e2e/cluster/scenarios
	$(GO) test -tags cluster -count=1 -timeout 180m -v -run 'TestScenarios/^($(or $(SCENARIO),.*))$$' ./internal/e2e/cluster/

test-release: ## make a release twice, and use it (needs the packages in {images,internal/e2e}/*/apt-packages)
	$(GO) test -tags release -count=1 -timeout 30m -v ./images/release/

clean: ## remove what the targets made
	rm -rf bin dist
