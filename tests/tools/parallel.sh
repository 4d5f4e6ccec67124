#!/bin/sh
# A model over several ranks against one rank: gradients, weights after updates, bits of log-probabilities.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"
. "$CAIRN_ROOT/tests/lib/ranks.sh"
. "$CAIRN_ROOT/tests/lib/layouts.sh"
need_ranks "models over several ranks"

model tied qwen3 8 2 true 80
model plain qwen2 6 3 false 84
model wide llama 8 4 false 80

# -- data: ZeRO-1 ------------------------------------------------------------------------------------
like 2 tied
like 8 tied
like 3 plain
# shellcheck disable=SC2086
ranks 3 "$layouts" plain.json again plain.one $small $megatron >out 2>err && cmp got again; ok $? "the same run twice: the same bits"

# -- each other dimension, and together ---------------------------------------------------------------
like 2 tied $tp=2
like 2 tied $tp=2 $sp
# More ranks than kv heads, and than the pieces in which products are summed: the last bits may differ.
near_one 4 tied $tp=4 $sp
like 3 plain $tp=3 $sp
like 6 plain $tp=3 $pp=2
like 2 tied $cp=2
like 3 plain $cp=3
like 2 tied $pp=2
like 3 plain $pp=3 $first=1 $last=3
like 5 tied $pp=5
like 2 tied $pp=2 policy.megatron_cfg.activation_checkpointing=true policy.megatron_cfg.recompute_granularity=selective
like 2 tied $pp=2 $turns=2
like 4 plain $pp=2 $turns=2 $cp=2
like 4 tied $tp=2 $cp=2
like 4 wide $tp=2 $pp=2 $sp
like 4 wide $tp=2
like 4 wide $tp=4
like 4 tied $pp=2 $cp=2
like 6 tied $pp=3 $last=1
like 4 wide $cp=2
# Other micro-batches than one rank took.
like 3 plain policy.sequence_packing.train_mb_tokens=30
like 2 tied $pp=2 policy.sequence_packing.train_mb_tokens=200
like 8 tied $tp=2 $pp=2 $cp=2 $sp
like 8 wide $tp=2 $pp=2 $sp

# -- experts, which lie over all other dimensions ------------------------------------------------------
experts='"num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 36'
model routed qwen3_moe 4 2 false 80 "$experts, \"norm_topk_prob\": true"
model shared qwen2_moe 4 2 true 80 "$experts, \"shared_expert_intermediate_size\": 44, \"mlp_only_layers\": [1]"
like 2 routed $ep=2
like 3 shared $ep=3
like 2 shared $etp=2
like 4 routed $ep=2
like 2 shared $tp=2 $ep=2
like 2 routed $tp=2 $etp=2
like 2 routed $cp=2 $ep=2
like 4 shared $pp=2 $ep=2
like 4 routed $ep=2 $etp=2
like 8 shared $tp=2 $cp=2 $ep=4
like 16 routed $tp=2 $cp=2 $pp=2 $ep=2 $etp=2

run 64 "a layout that the model can not have" ranks 2 "$layouts" plain.json x $small $megatron $tp=2
is "$(wc -l <err)" 1 "one line"; has err "3 key-value heads.*use tp 1" "says what to change"
run 64 "more turns than layers" ranks 2 "$layouts" plain.json x $small $megatron $pp=2 $turns=3
has err "3 turns through 2 stages, but the model has 5 layers: at most 2" "says what to change"
run 64 "a world of the wrong size" ranks 3 "$layouts" wide.json x $small $megatron $tp=2
is "$(wc -l <err)" 1 "one line"; has err "3 ranks.*multiple of 2: mpirun -n 4" "says what to change"

tap_done
