#include "tests/emu/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A block after the other, its threads as fibers of this thread, one at a time. */

enum { ARENA = 256 << 10, MOST_STATIC = 48 << 10, MOST_SHARED = 227 << 10, RED_ZONE = 64, MOST_THREADS = 1024 };

struct emu_place emu_now;
struct emu_block *emu_current;
uint64_t emu_switches, emu_meetings;

static struct emu_block sets[2];
static char launch_tag;
static enum emu_order order;
static uint64_t seed = 1, random_state, launches;

void emu_fail(const char *fmt, ...)
{
	va_list a;

	fputs("emu: ", stderr);
	va_start(a, fmt);
	vfprintf(stderr, fmt, a);
	va_end(a);
	fputc('\n', stderr);
	abort();
}

static void read_settings(void)
{
	static const char *const name[] = { "forward", "reverse", "random", "greedy", "pct" };
	const char *o = getenv("EMU_ORDER"), *s = getenv("EMU_SEED");
	static bool known;

	if (known)
		return;
	known = true;
	seed = s ? strtoull(s, nullptr, 0) : 1;
	for (int i = 0; o && i < 5; i++)
		if (!strcmp(o, name[i])) {
			order = (enum emu_order)i;
			return;
		}
	if (o && *o)
		emu_fail("EMU_ORDER=%s: wanted forward, reverse, random, greedy or pct", o);
}

static uint64_t draw(void)
{
	uint64_t x = random_state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return random_state = x;
}

/* -- who runs next ------------------------------------------------------------------------------------- */

static void set_ready(struct emu_block *b, struct emu_thread *t)
{
	t->state = EMU_READY;
	b->ready[t->id >> 6] |= (uint64_t)1 << (t->id & 63);
}

static void clear_ready(struct emu_block *b, struct emu_thread *t)
{
	b->ready[t->id >> 6] &= ~((uint64_t)1 << (t->id & 63));
}

/* The first that is ready from `at` on, around the end; -1: none. */
static int next_ready(const struct emu_block *b, int at)
{
	int words = (b->n + 63) / 64, w;
	uint64_t m;

	at %= b->n;
	w = at >> 6;
	m = b->ready[w] & ~(uint64_t)0 << (at & 63);
	for (int i = 0; i <= words; i++) {
		if (m)
			return w * 64 + __builtin_ctzll(m);
		w = (w + 1) % words;
		m = b->ready[w];
	}
	return -1;
}

static int last_ready(const struct emu_block *b, int at)
{
	int words = (b->n + 63) / 64, w;
	uint64_t m;

	at = (at + b->n) % b->n;
	w = at >> 6;
	m = b->ready[w] & ~(uint64_t)0 >> (63 - (at & 63));
	for (int i = 0; i <= words; i++) {
		if (m)
			return w * 64 + 63 - __builtin_clzll(m);
		w = (w + words - 1) % words;
		m = b->ready[w];
	}
	return -1;
}

/* Of the first warp by priority that has one ready. */
static int of_warps(const struct emu_block *b)
{
	for (int i = 0; i < (b->n + 31) / 32; i++) {
		int w = b->priority[i];
		uint32_t m = (uint32_t)(b->ready[w >> 1] >> (w & 1) * 32), high;

		if (!m)
			continue;
		high = order == EMU_PCT ? m & ~(uint32_t)0 << (draw() & 31) : m;
		return w * 32 + __builtin_ctz(high ? high : m);
	}
	return -1;
}

static struct emu_thread *pick(struct emu_block *b, int after)
{
	int i = order == EMU_FORWARD ? next_ready(b, after + 1) : order == EMU_REVERSE ? last_ready(b, after - 1) :
		order == EMU_RANDOM ? next_ready(b, (int)(draw() % (uint64_t)b->n)) : of_warps(b);

	return i < 0 ? nullptr : &b->thread[(size_t)i];
}

/* to NULL: back to who launched. */
static void go(struct emu_block *b, struct emu_thread *from, struct emu_thread *to)
{
	struct san_fiber *f = from ? &from->san : &san_main;

	if (to) {
		b->current = to;
		emu_now.thread = to->at;
	}
	emu_switches++;
	san_leave(f, to ? &to->san : &san_main, to ? to->stack : nullptr, to ? to->stack_bytes : 0, from && from->state == EMU_DONE);
	emu_switch(from ? &from->sp : &b->main_sp, to ? to->sp : b->main_sp);
	san_arrive(f);
}

[[noreturn]] static void stuck(const struct emu_block *b)
{
	int shown = 0;

	fprintf(stderr, "emu: all threads of block (%u, %u, %u) wait:\n", emu_now.block.x, emu_now.block.y, emu_now.block.z);
	for (int i = 0; i < b->n && shown < 8; i++) {
		const struct emu_thread *t = &b->thread[(size_t)i];

		if (t->state == EMU_DONE)
			continue;
		shown++;
		fprintf(stderr, "emu:   thread %d (warp %d, lane %d) at the %s of %s:%d", i, i / 32, i % 32,
			t->state == EMU_AT_BARRIER ? "barrier" : "warp collective", t->file, t->line);
		fprintf(stderr, t->state == EMU_AT_WARP ? ", mask %08x\n" : "\n", t->mask);
	}
	emu_fail("deadlock, or a collective that not all reach");
}

static void give_way(struct emu_block *b, struct emu_thread *me)
{
	struct emu_thread *t = pick(b, me->id);

	if (!t)
		stuck(b);
	if (t != me)
		go(b, me, t);
}

/* -- barriers -------------------------------------------------------------------------------------------- */

static void open_barrier(struct emu_block *b)
{
	b->result = b->predicate;
	for (int i = 0; i < b->n; i++)
		if (b->thread[(size_t)i].state == EMU_AT_BARRIER)
			set_ready(b, &b->thread[(size_t)i]);
	b->waiting = 0;
	b->barriers++;
}

int emu_barrier(int predicate, enum emu_join how, const char *file, int line)
{
	struct emu_block *b = emu_current;
	struct emu_thread *me = b->current;
	char *tag = &b->barrier_tag[b->barriers & 1];

	if (!b->waiting) {
		b->file = file;
		b->line = line;
		b->first = me->id;
		b->predicate = how == EMU_AND;
	} else if (b->line != line || strcmp(b->file, file)) {
		emu_fail("__syncthreads that not all reach: thread %d is at %s:%d, thread %d at %s:%d", me->id, file, line, b->first,
			 b->file, b->line);
	}
	predicate = predicate != 0;
	b->predicate = how == EMU_OR ? b->predicate | predicate : how == EMU_AND ? b->predicate & predicate : b->predicate + predicate;
	san_release(tag);
	me->file = file;
	me->line = line;
	if (++b->waiting == b->n) {
		open_barrier(b);
	} else {
		if (b->waiting == b->alive)
			emu_fail("__syncthreads at %s:%d, and %d threads have ended", file, line, b->n - b->alive);
		me->state = EMU_AT_BARRIER;
		clear_ready(b, me);
		give_way(b, me);
	}
	san_acquire(tag);
	return b->result;
}

/* -- warps ------------------------------------------------------------------------------------------------- */

int emu_lane(void)
{
	return emu_current->current->id & 31;
}

static bool is_here(const struct emu_block *b, const struct emu_thread *me, int lane)
{
	const struct emu_thread *t = b->thread.data() + (me->id & ~31) + lane;

	if (!(me->mask >> lane & 1))
		return true;
	if ((me->id & ~31) + lane >= b->n)
		emu_fail("mask %08x names lane %d, the block ends before it, at %s:%d", me->mask, lane, me->file, me->line);
	if (t->state == EMU_DONE)
		emu_fail("mask %08x names lane %d, which has ended, at %s:%d", me->mask, lane, me->file, me->line);
	if (t->state != EMU_AT_WARP || t->mask != me->mask)
		return false;
	if (t->kind != me->kind || t->line != me->line)
		emu_fail("lanes of a warp at different collectives: %s:%d and %s:%d", me->file, me->line, t->file, t->line);
	return true;
}

/* All lanes of the mask wait here with the same collective: their payloads.  The next lane to come is mostly a neighbour. */
static bool all_here(const struct emu_block *b, void **payload, const struct emu_thread *me)
{
	const struct emu_thread *first = b->thread.data() + (me->id & ~31);
	int lane = me->id & 31;

	if (!is_here(b, me, (lane + 1) & 31) || !is_here(b, me, (lane + 31) & 31))
		return false;
	for (int l = 0; l < 32; l++)
		if (!is_here(b, me, l))
			return false;
	for (int l = 0; l < 32; l++)
		payload[l] = me->mask >> l & 1 ? first[l].payload : nullptr;
	return true;
}

void emu_meet(enum emu_kind kind, unsigned mask, void *payload, emu_meeting f, const char *file, int line)
{
	struct emu_block *b = emu_current;
	struct emu_thread *me = b->current;
	void *all[32];

	if (!(mask >> (me->id & 31) & 1))
		emu_fail("lane %d calls with mask %08x, which does not name it, at %s:%d", me->id & 31, mask, file, line);
	me->kind = kind;
	me->mask = mask;
	me->payload = payload;
	me->file = file;
	me->line = line;
	me->state = EMU_AT_WARP;
	if (!all_here(b, all, me)) {
		clear_ready(b, me);
		give_way(b, me);
		return;
	}
	emu_meetings++;
	f(all, mask);
	for (int l = 0; l < 32; l++)
		if (mask >> l & 1)
			set_ready(b, &b->thread[(size_t)((me->id & ~31) + l)]);
	if (order == EMU_RANDOM || order == EMU_PCT)
		give_way(b, me);
}

static void nothing(void *const *, unsigned) {}

void emu_syncwarp(unsigned mask, const char *file, int line)
{
	struct emu_thread *me = emu_current->current;
	char *tag = &emu_current->warp_tag[me->id >> 5][me->syncs++ & 1];

	san_release(tag);
	emu_meet(EMU_SYNCWARP, mask, nullptr, nothing, file, line);
	san_acquire(tag);
}

/* -- cp.async: nothing arrives before it is waited for -------------------------------------------------------- */

void emu_copy_async(void *to, const void *from, int bytes, bool given, const char *file, int line)
{
	if ((uintptr_t)to % (uintptr_t)bytes || (given && (uintptr_t)from % (uintptr_t)bytes))
		emu_fail("cp.async of %d bytes at an address that is no multiple of them, at %s:%d", bytes, file, line);
	san_writes(to, (size_t)bytes);
	if (given)
		san_reads(from, (size_t)bytes);
	emu_fill(to, 0xff, (size_t)bytes);
	emu_current->current->open.push_back({ to, from, bytes, given });
}

void emu_copy_commit(void)
{
	struct emu_thread *me = emu_current->current;

	me->group.push_back(std::move(me->open));
	me->open.clear();
}

void emu_copy_wait(int left)
{
	struct emu_thread *me = emu_current->current;

	while ((int)me->group.size() > left) {
		for (const struct emu_copy &c : me->group.front()) {
			san_writes(c.to, (size_t)c.bytes);
			if (c.given) {
				san_reads(c.from, (size_t)c.bytes);
				emu_move(c.to, c.from, (size_t)c.bytes);
			} else {
				emu_fill(c.to, 0, (size_t)c.bytes);
			}
		}
		me->group.erase(me->group.begin());
	}
}

/* -- shared memory -------------------------------------------------------------------------------------------- */

/* The arrays of a block lie behind its dynamic memory, with a gap before each that sanitizers know. */
void *emu_shared(const void *key, size_t bytes, size_t align)
{
	struct emu_block *b = emu_current;
	size_t at, fixed;

	for (const struct emu_array &a : b->array)
		if (a.key == key)
			return a.p;
	align = align < 16 ? 16 : align;
	at = (b->used + RED_ZONE + align - 1) / align * align;
	fixed = at + bytes - b->dynamic - (b->array.size() + 1) * RED_ZONE;
	if (at + bytes > ARENA || fixed > MOST_STATIC || b->dynamic + fixed > MOST_SHARED)
		emu_fail("a block with %zu bytes of arrays in shared memory beside %zu given at the launch", fixed, b->dynamic);
	b->used = at + bytes;
	san_show(b->shared + at, bytes);
	emu_fill(b->shared + at, 0xff, bytes);
	b->array.push_back({ key, b->shared + at });
	return b->shared + at;
}

unsigned char *emu_shared_dynamic(void)
{
	return emu_current->shared;
}

/* -- a thread's life ------------------------------------------------------------------------------------------- */

static void thread_main(void)
{
	struct emu_block *b = emu_current;
	struct emu_thread *me = b->current, *t;

	san_begin(&me->san);
	/* After the launch, and after the last block that had this set. */
	san_acquire(&launch_tag);
	san_acquire(&b->end_tag[(b->runs & 1) ^ 1]);
	(*b->kernel)();
	san_release(&b->end_tag[b->runs & 1]);
	if (!me->open.empty() || !me->group.empty())
		emu_fail("thread %d ends with cp.async under way", me->id);
	me->state = EMU_DONE;
	clear_ready(b, me);
	b->alive--;
	if (b->waiting && b->waiting == b->alive)
		emu_fail("thread %d ends, and %d threads wait at __syncthreads %s:%d", me->id, b->waiting, b->file, b->line);
	t = b->alive ? pick(b, me->id) : nullptr;
	if (b->alive && !t)
		stuck(b);
	go(b, me, t);
	abort();
}

static void threads_begin(struct emu_block *b, dim3 size)
{
	while ((int)b->thread.size() < b->n) {
		struct emu_thread t = {};

		emu_stack_new(&t);
		san_new(&t.san, (int)b->thread.size());
		b->thread.push_back(std::move(t));
	}
	memset(b->ready, 0, sizeof(b->ready));
	for (int i = 0; i < b->n; i++) {
		struct emu_thread *t = &b->thread[(size_t)i];
		unsigned u = (unsigned)i;

		t->id = i;
		t->at = { u % size.x, u / size.x % size.y, u / (size.x * size.y) };
		t->syncs = 0;
		emu_stack_begin(t, thread_main);
		set_ready(b, t);
	}
}

static void memory_begin(struct emu_block *b, size_t dynamic)
{
	if (!b->shared)
		b->shared = (unsigned char *)aligned_alloc(1024, ARENA);
	san_hide(b->shared, ARENA);
	san_show(b->shared, dynamic);
	emu_fill(b->shared, 0xff, dynamic);
	b->dynamic = b->used = dynamic;
	b->array.clear();
}

static void priorities(struct emu_block *b)
{
	for (int i = 0; i < (b->n + 31) / 32; i++) {
		int j = order == EMU_PCT ? (int)(draw() % (uint64_t)(i + 1)) : i;

		b->priority[i] = b->priority[j];
		b->priority[j] = i;
	}
}

static void run_block(struct emu_block *b, const std::function<void()> &f, dim3 threads, size_t shared)
{
	b->n = b->alive = (int)(threads.x * threads.y * threads.z);
	b->waiting = 0;
	b->kernel = &f;
	b->runs++;
	emu_current = b;
	memory_begin(b, shared);
	threads_begin(b, threads);
	priorities(b);
	go(b, nullptr, pick(b, order == EMU_REVERSE ? 0 : b->n - 1));
	emu_current = nullptr;
}

/* Any order of blocks is right; those after the first two go through all by a step that has no factor in common with their number. */
static long block_at(long i, long n, uint64_t shift)
{
	const long step = 7919;

	if (order == EMU_FORWARD)
		return i;
	if (order == EMU_REVERSE)
		return n - 1 - i;
	return n % step ? (long)(((uint64_t)i * (uint64_t)step + shift) % (uint64_t)n) : i;
}

void emu_run(const std::function<void()> &f, dim3 blocks, dim3 threads, size_t shared)
{
	long n = (long)blocks.x * blocks.y * blocks.z;

	read_settings();
	if (emu_current)
		emu_fail("a launch out of a kernel");
	random_state = (seed * 1000003 + ++launches) * 0x9e3779b97f4a7c15u | 1;
	uint64_t shift = draw();
	san_release(&launch_tag);
	emu_now.threads = threads;
	emu_now.blocks = blocks;
	for (long i = 0; i < n; i++) {
		long at = block_at(i, n, shift);

		emu_now.block = { (unsigned)(at % blocks.x), (unsigned)(at / blocks.x % blocks.y), (unsigned)(at / ((long)blocks.x * blocks.y)) };
		run_block(&sets[i & 1], f, threads, shared);
	}
	for (struct emu_block &b : sets)
		for (char &tag : b.end_tag)
			san_acquire(&tag);
}
