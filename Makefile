# A thin front for CMake: every target installs what it needs and builds first.
#   make demo       train a small model on real text in BF16, MXFP8 and HiF8 and show the result
#   make check      the tests (under 12 minutes on two cores)
#   make install    the program, liboctet, headers and pages into PREFIX (/usr/local)
#   make q3         the acceptance matrix on 8 ranks (octet verify), about half an hour on two cores
#   make check-all  the long form: sanitizers, clang, portable kernels
#   make kernel-times  every inner loop: ns and speed over the portable one, at each instruction set
JOBS ?= $(shell nproc)
PRESET ?= release
PREFIX ?= /usr/local
BUILD := build/$(PRESET)
OCTET := $(BUILD)/octet
TIMED := test_quantize test_gemm_twins test_elementwise_twins test_attention

.PHONY: all deps configure build demo check q3 check-all kernel-times install layers format clean

all: build

deps:
	@scripts/install-deps

configure: deps
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) >/dev/null

build: configure
	@ninja -C $(BUILD) -j $(JOBS)

demo: configure
	@ninja -C $(BUILD) -j $(JOBS) octet
	@scripts/demo $(OCTET)

check: build layers
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) --timeout 300
	@grep -ah 'x the tokens/s of BF16' $(BUILD)/Testing/Temporary/LastTest.log # of cli_verify_speed

q3: configure
	@ninja -C $(BUILD) -j $(JOBS) octet
	@$(OCTET) verify

check-all: check
	@scripts/check-all

kernel-times: configure
	@ninja -C $(BUILD) -j $(JOBS) $(TIMED)
	@for test in $(TIMED); do $(BUILD)/tests/$$test --times || exit 1; done

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

layers:
	@scripts/check-layers
	@scripts/check-source

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build
