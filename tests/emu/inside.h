#ifndef TESTS_EMU_INSIDE_H
#define TESTS_EMU_INSIDE_H

/* What the files of the emulator share.  EMU_SANITIZER names one of sanitizer_*.h. */

#include <cuda_runtime_api.h>

#include "tests/emu/emu.h"

#include EMU_SANITIZER

#include <vector>

/* Out of sight of sanitizers, which would take a memset here for the kernel's. */
static inline void emu_fill(void *p, int v, size_t n)
{
	asm volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(v) : "memory");
}

static inline void emu_move(void *to, const void *from, size_t n)
{
	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

enum emu_state { EMU_READY, EMU_AT_BARRIER, EMU_AT_WARP, EMU_DONE };
enum emu_kind { EMU_SYNCWARP = 1, EMU_SHUFFLE, EMU_BALLOT, EMU_REDUCE, EMU_MMA_BF16, EMU_MMA_TF32, EMU_LDMATRIX };

struct emu_copy { void *to; const void *from; int bytes; bool given; };

struct emu_thread {
	void *sp;
	char *stack;
	size_t stack_bytes;
	struct san_fiber san;
	enum emu_state state;
	int id;
	uint3 at;
	/* where it waits */
	enum emu_kind kind;
	unsigned mask;
	void *payload;
	const char *file;
	int line;
	/* cp.async: the open group, and those that are committed */
	std::vector<struct emu_copy> open;
	std::vector<std::vector<struct emu_copy>> group;
	unsigned syncs;
};

struct emu_array { const void *key; unsigned char *p; };

/* One block's threads and shared memory.  Two of these take turns, so that nothing orders a block after its neighbour. */
struct emu_block {
	std::vector<struct emu_thread> thread;
	int n, alive, waiting;
	struct emu_thread *current;
	uint64_t ready[16];
	int priority[32];
	const std::function<void()> *kernel;
	unsigned char *shared;
	size_t dynamic, used;
	std::vector<struct emu_array> array;
	const char *file;       /* of the barrier that some wait at */
	int line, first;
	int predicate, result;
	unsigned barriers, runs;
	/* what sanitizers order threads by; two of each, in turn: of one, the next arrival would order who has not yet left */
	char barrier_tag[2], warp_tag[32][2], end_tag[2];
	void *main_sp;
};

typedef void (*emu_meeting)(void *const *payload, unsigned mask);
void emu_meet(enum emu_kind kind, unsigned mask, void *payload, emu_meeting f, const char *file, int line);

/* fiber.cpp */
extern "C" void emu_switch(void **save, void *to);
void emu_stack_new(struct emu_thread *t);
void emu_stack_begin(struct emu_thread *t, void (*main)(void));

/* block.cpp */
extern struct emu_block *emu_current;
enum emu_order { EMU_FORWARD, EMU_REVERSE, EMU_RANDOM, EMU_GREEDY, EMU_PCT };
void emu_run(const std::function<void()> &f, dim3 blocks, dim3 threads, size_t shared);
extern uint64_t emu_switches, emu_meetings;

/* cudart.cpp: work of a stream, which is called until it gives true; memory of the device */
void emu_enqueue(cudaStream_t s, std::function<bool()> f);
void emu_step(void);    /* one piece of work of each stream, if it can run */
bool emu_holds(const void *p, size_t bytes);

/* guard.cpp: memory of the device that is open only between emu_open() and emu_close(); `most`: that there can ever be */
bool emu_guards(void);
void *emu_guarded(size_t bytes, size_t most);
void emu_unguarded(void *p);
void emu_open(void);
void emu_close(void);

/* nccl.cpp: sleep until another rank may have sent something.  False: nothing waits for a rank. */
bool emu_ranks_wait(void);

#endif
