#include "kernels/cpu/ops.h"

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/moe.h"
#include "kernels/cpu/rows.h"
#include "libcommon/xalloc.h"

#include <string.h>

static void *alloc_cpu(size_t bytes, const char *what)
{
	return big_alloc_streamed(bytes, what);
}

static void copy_cpu(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static void columns_copy_cpu(void *to, size_t to_row, const void *from, size_t from_row, size_t bytes, long rows)
{
	for (size_t r = 0; r < (size_t)rows; r++)
		memcpy((char *)to + r * to_row, (const char *)from + r * from_row, bytes);
}

static size_t room_cpu(void)
{
	return 0;
}

static struct ops ops = {
	.name = "cpu",
	.alloc = alloc_cpu, .release = big_free, .put = copy_cpu, .get = copy_cpu, .copy = copy_cpu, .zero = big_zero,
	.rows_gather = rows_gather_cpu, .rows_scatter = rows_scatter_cpu, .columns_copy = columns_copy_cpu, .room = room_cpu,
	.matrix_init = matrix_init_cpu, .matrix_load = matrix_load_cpu, .matrix_release = matrix_release_cpu,
	.linear_fwd = linear_fwd_cpu, .linear_parts = linear_parts_cpu, .linear_join = linear_join_cpu,
	.linear_dx = linear_dx_cpu, .linear_dw = linear_dw_cpu,
	.attention_fwd = attention_fwd_cpu, .attention_bwd = attention_bwd_cpu,
	.kv_page_bytes = kv_page_bytes_cpu, .kv_put = kv_put_cpu, .attention_cached = attention_cached_cpu,
	.embed_fwd = embed_fwd_cpu, .embed_bwd = embed_bwd_cpu,
	.rmsnorm_fwd = rmsnorm_fwd_cpu, .rmsnorm_bwd = rmsnorm_bwd_cpu,
	.rope = rope_cpu, .swiglu_fwd = swiglu_fwd_cpu, .swiglu_bwd = swiglu_bwd_cpu, .add = add_cpu,
	.logprob = logprob_cpu, .logprob_bwd = logprob_bwd_cpu,
	.logprob_parts = logprob_parts_cpu, .logprob_join = logprob_join_cpu, .sample = sample_cpu,
	.route = route_cpu, .route_bwd = route_bwd_cpu, .sort_slots = sort_slots_cpu,
	.grouped_fwd = grouped_fwd_cpu, .grouped_dx = grouped_dx_cpu, .grouped_dw = grouped_dw_cpu,
	.permute = permute_cpu, .combine = combine_cpu, .weigh_bwd = weigh_bwd_cpu, .unpermute = unpermute_cpu,
	.sigmoid_fwd = sigmoid_fwd_cpu, .sigmoid_bwd = sigmoid_bwd_cpu,
	.adamw = adamw_cpu, .sumsq = sumsq_cpu,
};

const struct ops *ops_cpu(const char *isa, struct err *e)
{
	if (isa_choose(isa, e))
		return NULL;
	ops.isa = isa_name();
	return &ops;
}
