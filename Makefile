# What each target needs: build and test need Go, git, make and bash; race and lint need a C compiler and the Go module
# proxy; testbed needs Debian and root.

SHELL := bash

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# -count=1, because tests look at engines, which the test cache knows nothing of. -vet=off, because .ci/run and the linter vet all of it.
# The time is for one package.
GOTEST := go test -json -count=1 -vet=off -timeout 55m

# The linter is built from its module once, outside the checkout.
LINT_VERSION := v2.15.0
LINT_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/elsewhere/golangci-lint-$(LINT_VERSION)
LINT := $(LINT_DIR)/golangci-lint

# The clouds' suites run against emulators that are made of this machine's own processes: one package at a time.
CLOUDS := ./backend/modal ./backend/daytona ./backend/vercel

# Under the race detector a far backend's cases are those in which many things happen at once, or something is lost: the rest is the same
# code of ours on another transport, and is run on local.
RACE_FAR := ./backend/docker ./backend/ssh ./backend/singularity $(CLOUDS)
RACE_CASES := AtOnce|Twenty|While|Fault|Kill|Stored|Meanwhile|Reap|TheFirstBashes|^TestConformance$$/^backend=/^(lost|spawn_ahead|concurrency|last_resort)$$

# The scripts of the command line start some hundred programs, each for one command and one after the other: nothing happens at once in
# them, and under the detector each takes long to start.
RACE_NOT := ^(TestScripts|TestFilesOnRealEngines|TestRealProgramsOnATerminal)$$

# How the report ends where REPEAT_FAILED let it repeat what failed, and all that passed.
UNSTEADY = [ $$? = 3 ]

others = $(filter-out $(1),$(shell go list ./... | sed 's|^github.com/elsewhere-sh/elsewhere|.|'))

.PHONY: all build test race clouds testbed bench lint docs recording man fmt cover clean

all: build

build: ## bin/elsewhere, static
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/elsewhere ./cmd/elsewhere

test: bin/report ## every test whose engine is here; REQUIRE_ALL=1 makes a skip a failure
	set -o pipefail; { $(GOTEST) $(call others,$(CLOUDS)); first=$$?; $(GOTEST) -p 1 $(CLOUDS) && exit $$first; } | \
		bin/report || $(UNSTEADY)

clouds: bin/report ## the clouds' backends alone, with more cases at a distance and the long soak
	set -o pipefail; LONG=1 $(GOTEST) -p 1 $(CLOUDS) | bin/report || $(UNSTEADY)

race: bin/report ## the same with the race detector, without the size tests, one package at a time: the detector takes the processors
	set -o pipefail; export CGO_ENABLED=1; { \
		$(GOTEST) -race -short -p 1 -skip '$(RACE_NOT)' $(call others,$(RACE_FAR)); first=$$?; \
		$(GOTEST) -race -short -p 1 -run '$(RACE_CASES)' $(RACE_FAR) && exit $$first; } | \
		bin/report -short -repeat 'go test -race -short' || $(UNSTEADY)

testbed: ## install and start the real engines
	test/testbed/up

bench: ## README's numbers; BENCH=local for one backend alone
	BENCH='$(BENCH)' go run ./test/bench

lint: $(LINT)
	$(LINT) run ./...

$(LINT):
	GOBIN='$(LINT_DIR)' GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

docs: ## what is generated in docs/
	go generate ./...

recording: ## docs/recording.svg, of the real program; needs Docker and test/testbed/docker.sh's images
	go run ./test/recording

man: build ## dist/man, the man pages
	bin/elsewhere man dist/man

fmt:
	gofmt -w .

cover: bin/report
	set -o pipefail; $(GOTEST) -coverpkg=./... -coverprofile=cover.out ./... | bin/report
	go tool cover -func=cover.out | tail -1

clean:
	rm -rf bin dist cover.out

.PHONY: bin/report
bin/report:
	@go build -o $@ ./test/report
