# The loop of grpo.sh as make rules: targets are manifests, so make knows what is done.
#
#	make -f pipelines/experiment.mk RUN=dir RECIPE=r.yaml STEPS=100 [LAUNCH='mpirun -n 8']
#
# With -j2 and a LAG of L > 0 the rollout of step N reads the checkpoint of step N-1-L, beside the training of the steps
# before it; that needs importance-sampling correction and is not built yet, so LAG has to be 0.

RUN    ?= run
RECIPE ?= recipe.yaml
STEPS  ?= 10
LAG    ?= 0
LAUNCH ?= $(CAIRN_LAUNCH)
CAIRN  ?= $(firstword $(wildcard bin/cairn) cairn)

ifneq ($(LAG),0)
$(error LAG=$(LAG): training on samples of an older checkpoint is not built yet)
endif

SCRIPTS := $(dir $(lastword $(MAKEFILE_LIST)))
number  = step-$(shell printf %06d $1)
before  = $(call number,$(shell expr $(patsubst step-%,%,$1) - 1))
SEQUENCE := $(shell seq -f 'step-%06.0f' 1 $(STEPS))

all: $(RUN)/checkpoints/$(call number,$(STEPS))/manifest.json

# The model that the run starts from, as grpo.sh takes it.
$(RUN)/checkpoints/step-000000/manifest.json:
	@mkdir -p $(RUN)/checkpoints $(RUN)/logs
	set -eu; CAIRN='$(CAIRN)' CAIRN_PIPELINES='$(SCRIPTS)'; . $(SCRIPTS)lib.sh; run='$(RUN)' recipe='$(RECIPE)' first='$(@D)'; first_checkpoint

define step
$(RUN)/samples/$1/manifest.json: $(RUN)/checkpoints/$(call before,$1)/manifest.json
	@mkdir -p $(RUN)/samples
	$(LAUNCH) $(CAIRN) rollout $$(<D) -c $(RECIPE) -o $$(@D)
$(RUN)/scored/$1/manifest.json: $(RUN)/samples/$1/manifest.json
	@mkdir -p $(RUN)/scored
	$(LAUNCH) $(CAIRN) score $$(<D) -c $(RECIPE) --policy $(RUN)/checkpoints/$(call before,$1) --reference $(RUN)/checkpoints/step-000000 -o $$(@D)
$(RUN)/checkpoints/$1/manifest.json: $(RUN)/scored/$1/manifest.json
	$(LAUNCH) $(CAIRN) train-step $(RUN)/checkpoints/$(call before,$1) $$(<D) -c $(RECIPE) -o $$(@D)
endef
$(foreach s,$(SEQUENCE),$(eval $(call step,$s)))

.PHONY: all
.SECONDARY:
