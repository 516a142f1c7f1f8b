# Common tasks; `make help` lists them. CMake does the work (CMakePresets.json); this file only knows the order.
BUILD := build
JOBS ?= $(shell nproc)
SMALL_MODEL := $(BUILD)/models/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL := $(SMALL_MODEL)
TILEWRIGHT := $(BUILD)/cli/tilewright
PREFIX ?= /usr/local
ARCHS ?= sm_80,sm_89,sm_90a,sm_100a,sm_120
PROMPT ?= Once upon a time

.DEFAULT_GOAL := help
.PHONY: help demo test test-cuda bundle test-full check fmt tables bench record build install asan tsan fuzz deps clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## /  make \1  /p' $(MAKEFILE_LIST)

deps:  ## install missing packages (apt-get, as root or with sudo)
	@tools/install_deps.sh build

$(BUILD)/build.ninja: | deps
	@echo "-- configuring $(BUILD)"
	@mkdir -p $(BUILD)
	@cmake --preset release > $(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }

build: deps $(BUILD)/build.ninja  ## build everything into build/
	@cmake --build $(BUILD) -j $(JOBS)

demo: deps $(BUILD)/build.ninja  ## build, fetch a small model (or take MODEL=FILE.gguf), tune for this machine, generate text
	@[ "$(MODEL)" = "$(SMALL_MODEL)" ] || [ -r "$(MODEL)" ] || { echo "make demo: cannot read MODEL=$(MODEL)" >&2; exit 1; }
	@cmake --build $(BUILD) -j $(JOBS) --target tilewright_cli
	@[ "$(MODEL)" != "$(SMALL_MODEL)" ] || tools/get_model.sh $(BUILD)/models
	@tools/demo.sh $(TILEWRIGHT) "$(MODEL)" "$(PROMPT)"

test: build  ## build and run the tests, with CUDA kernels for one architecture
	@tools/run_tests.sh $(BUILD) -j $(JOBS) -LE '^full$$'

test-cuda: build  ## test the CUDA kernels on the GPU (without one: on the host and with the compiler, and says what was skipped)
	@if $(TILEWRIGHT) kernels --device cuda:0 >/dev/null 2>&1; then tools/run_tests.sh $(BUILD) -j 1 -L '^cuda$$'; \
	  else tools/run_tests.sh $(BUILD) -j $(JOBS) -L '^cuda(_host)?$$'; fi

bundle: build  ## compile every CUDA kernel into the bundle that is found beside the command (needs NVRTC, no GPU)
	@tools/get_nvrtc.sh $(BUILD)/nvrtc
	@[ ! -d $(BUILD)/nvrtc/13.0.88 ] || export TILEWRIGHT_NVRTC=$(BUILD)/nvrtc/13.0.88; \
	  $(TILEWRIGHT) bundle build --all --arch $(ARCHS) -o $(BUILD)/cli/tilewright.twb

test-full: build  ## run all tests, including every CUDA kernel for every architecture
	@tools/run_tests.sh $(BUILD) -j $(JOBS) -C full

check: deps  ## check format, layers and clang-tidy of changed files (ALL=1: of all files)
	@tools/install_deps.sh check
	@tools/check.sh $(if $(ALL),--all)

fmt:  ## format changed files (ALL=1: all files)
	@tools/install_deps.sh check
	@tools/fmt.sh $(if $(ALL),--all)

tables: deps $(BUILD)/build.ninja  ## run the tests behind the tables of README.md and docs/formats.md, and write the tables from what they found
	@cmake --build $(BUILD) -j $(JOBS) --target tests_verifies document_tables
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -L '^verifies$$'
	@python3 -B tools/docs/collect_verified.py docs/verified.tsv $(BUILD)/test-results
	@$(BUILD)/tools/docs/document_tables .

bench: build  ## run the benchmarks on the small model
	@tools/get_model.sh $(BUILD)/models
	@$(TILEWRIGHT) bench model $(MODEL) -p 512 -n 128

record: build  ## measure every number in the README again, into bench/results/ (needs a quiet machine, 25 minutes, and as many more with a GPU)
	@tools/get_model.sh $(BUILD)/models
	@tools/get_nvrtc.sh $(BUILD)/nvrtc
	@[ -x $(BUILD)/llama/bin/llama-bench ] || tools/baseline/build_llama_cpp.sh $(BUILD)/llama --no-venv
	@bench/record/record_all.sh $(BUILD) $(MODEL)

install: build  ## install headers, library, command and, after make bundle, the bundle to PREFIX (default /usr/local)
	@cmake --install $(BUILD) --prefix $(PREFIX)

asan: deps  ## run tests that parse or pack under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/sanitize.sh asan parse

tsan: deps  ## run tests of records and threads under ThreadSanitizer
	@tools/sanitize.sh tsan tsan

fuzz: deps  ## run every fuzz target for FUZZ_SECONDS (default 60)
	@tools/install_deps.sh check
	@tools/fuzz.sh $(or $(FUZZ_SECONDS),60)

clean:  ## remove all build folders
	@rm -rf $(BUILD) $(BUILD)-*/
