# Run `make help` for a list of the targets.
GO      ?= go
# Without safe.directory, git refuses to read another user's clone, and then go build and go list fail: `sudo make test`.
GIT      = git -c safe.directory='$(CURDIR)'
ifndef GIT_CONFIG_COUNT
export GIT_CONFIG_COUNT   = 1
export GIT_CONFIG_KEY_0   = safe.directory
export GIT_CONFIG_VALUE_0 = $(CURDIR)
endif
# The version comes from the tag. Without a tag it is the version on top of CHANGELOG.md with the commit's time and name, and sorts before
# that release, because packages sort a tilde before the end.
NEXT     = $(shell awk '/^## [0-9]/ { print $$2; exit }' CHANGELOG.md)
VERSION ?= $(shell $(GIT) describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || \
	TZ=UTC $(GIT) show --no-patch --date=format-local:%Y%m%d%H%M%S --format='$(NEXT)~dev.%cd.%h' 2>/dev/null || echo '$(NEXT)~dev')
LDFLAGS  = -s -w -X main.version=$(VERSION)
LINT     = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VULN     = golang.org/x/vuln/cmd/govulncheck@v1.9.0
export CGO_ENABLED = 0

.DEFAULT_GOAL := help
.PHONY: help need-go build demo test test-user torture test-vm test-arm64 test-cluster test-machines test-release bench lint vuln fmt dist clean

help: ## list all targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

need-go:
	@command -v $(GO) >/dev/null || { echo "$(GO) is not installed, or not in PATH: install Go 1.26 from https://go.dev/dl"; exit 1; }

build: need-go ## build bin/nodegate, one static binary
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/nodegate ./cmd/nodegate

demo: build ## install into a temporary root; hold a wrong node, cure a Service, undo it, in scratch namespaces
	internal/demo/demo.sh bin/nodegate

# Run twice as many packages, and tests of one, as there are processors: they wait more than they compute. Start with the longest package.
test: need-go ## run every test that works without a virtual machine; as root install the programs for it, and also test the real kernel, in namespaces
	$(GO) run ./internal/testrun -p $$((2 * $$(nproc))) -parallel $$((2 * $$(nproc))) ./cmd/nodegate ./...

# The tests that write files or run the program behave differently for an ordinary user; the rest either need root or do not care.
test-user: need-go ## run the tests that differ for an ordinary user
	$(GO) run ./internal/testrun -p $$((2 * $$(nproc))) -parallel $$((2 * $$(nproc))) -skip 'TestSecrets|TestGuides' ./cmd/nodegate ./docs ./internal/host/... ./internal/testrun ./units

torture: build ## kill the real binary, starve it of memory and disk, make its system calls fail; three minutes, with LONG=1 an hour (needs root and internal/e2e/torture/apt-packages)
	LONG='$(LONG)' $(GO) test -tags torture -count=1 -timeout $(if $(LONG),120m,20m) -v ./internal/e2e/torture/

# Run three machines for every two processors: with two machines, a fifth of the processors' time was idle.
test-vm: ## boot real Debian nodes in QEMU (needs internal/e2e/vm/apt-packages); RUN='TestTrees|TestBake' selects, SKIP leaves out
	$(GO) test -tags vm -count=1 -timeout 80m -v -parallel $$(($$(nproc) * 3 / 2)) -run '$(RUN)' -skip 'TestARM64$(if $(SKIP),|$(SKIP))' ./internal/e2e/vm/

test-arm64: ## boot an emulated arm64 node; its image takes minutes to build
	$(GO) test -tags vm -count=1 -timeout 40m -v -run TestARM64 ./internal/e2e/vm/

bench: build ## measure check, audit, probe, watch and the boot; OLD=BINARY adds another binary for comparison
	$(GO) run ./internal/bench bin/nodegate $(OLD)
	$(GO) test -run "^$$" -bench . -benchtime 10x ./internal/audit/proxy ./checks/datapath
	$(GO) test -run "^$$" -bench Reading -benchtime 5x ./internal/audit
	$(GO) run ./internal/bench/idle bin/nodegate
	@if command -v qemu-system-x86_64 >/dev/null; then \
		$(GO) test -tags vm -run '^$$' -bench NativeBoot -benchtime 20x ./internal/e2e/vm/; fi

lint: ## run gofmt, go vet, golangci-lint and the list of words; every finding fails
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./... && $(GO) vet -tags vm,release,cluster,torture ./images/... ./internal/e2e/...
	@$(GO) run ./internal/words $$(git ls-files '*.go' | grep -vE 'testdata/|_test\.go') README.md docs/*.md docs/guides/*.md
	$(GO) run $(LINT) run --build-tags vm,release,cluster,torture ./...
	@if command -v packer >/dev/null; then packer fmt -check packer.pkr.hcl; else echo "packer is not installed: packer.pkr.hcl is not checked"; fi

vuln: ## report known vulnerabilities in the code that nodegate calls; needs https://vuln.go.dev, and passes without it
	@out=$$($(GO) run $(VULN) ./... 2>&1); status=$$?; case "$$status $$out" in \
		0\ *) echo "govulncheck: no known vulnerability" ;; \
		*'Vulnerability #'*) echo "$$out"; exit 1 ;; \
		*'fetching vulnerabilities'*|*'dial tcp'*) echo "govulncheck has not run: https://vuln.go.dev cannot be reached" ;; \
		*) echo "$$out"; exit 1 ;; esac

fmt: ## format the Go files and group their imports
	gofmt -w $$(git ls-files '*.go')
	$(GO) run $(LINT) fmt

dist: ## binaries, packages, image, module lists and their sums in dist/; NODEGATE_SIGNING_KEY=FILE signs them, and a tag needs it
	@rm -rf dist
	@VERSION='$(VERSION)' $(GO) run ./images/release dist
	@case '$(VERSION)' in *~dev*) echo "This commit has no tag, so its version is $(VERSION). To release: git tag -a v$(NEXT) -m v$(NEXT) && NODEGATE_SIGNING_KEY=FILE make dist" ;; esac

test-cluster: ## test with a real control plane, kube-proxy and kubelet (needs {images,internal/e2e}/*/apt-packages); LONG=1 changes Services for ten minutes per backend; RUN and SKIP as for test-vm
	LONG='$(LONG)' $(GO) test -tags cluster -count=1 -timeout 120m -v -run '$(RUN)' -skip 'TestScenarios$(if $(SKIP),|$(SKIP))' ./internal/e2e/cluster/

test-machines: ## the same with two machines in QEMU that join the cluster; SCENARIO='same-node|held' selects from internal/e2e/cluster/scenarios
	$(GO) test -tags cluster -count=1 -timeout 180m -v -run 'TestScenarios/^($(or $(SCENARIO),.*))$$' ./internal/e2e/cluster/

test-release: ## build a release twice, compare and use it (needs {images,internal/e2e}/*/apt-packages); SKIP as for test-vm
	$(GO) test -tags release -count=1 -timeout 30m -v -skip '$(SKIP)' ./images/release/

clean: ## remove bin and dist
	rm -rf bin dist
