#include "libcommon/comm.h"

#include "tests/lib/tap.h"

static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",      "SLURM_NTASKS",
					 "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_PROCID",
					 "OMPI_COMM_WORLD_RANK" };

static int start(struct err *e)
{
	struct comm c;
	int rc = comm_init(&c, e);

	if (!rc && (c.rank != 0 || c.size != 1))
		rc = 1;
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	return rc;
}

static void launchers(void)
{
	struct err e = ERR_INIT;

	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	ok(start(&e) == 0, "no launcher");
	setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
	ok(start(&e) == 0, "mpirun -n 1");
	setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
	ok(start(&e) == -1 && e.code == EX_UNAVAILABLE && strstr(e.msg, "4 ranks"), "%s", e.msg);
	setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
	setenv("OMPI_COMM_WORLD_RANK", "1st", 1);
	ok(start(&e) == -1 && e.code == EX_UNAVAILABLE && strstr(e.msg, "1st"), "%s", e.msg);
	setenv("PMI_SIZE", "2", 1);
	ok(start(&e) == -1 && e.code == EX_UNAVAILABLE && strstr(e.msg, "PMI_SIZE"), "%s", e.msg);
	setenv("PMI_SIZE", "many", 1);
	ok(start(&e) == -1 && e.code == EX_UNAVAILABLE, "%s", e.msg);
	setenv("SLURM_NTASKS", "8", 1);
	setenv("SLURM_PROCID", "0", 1);
	ok(start(&e) == 0, "a batch script of eight tasks is one process");
	setenv("SLURM_NTASKS", "8", 1);
	setenv("SLURM_PROCID", "3", 1);
	setenv("SLURM_STEP_ID", "0", 1);
	ok(start(&e) == -1 && e.code == EX_UNAVAILABLE && strstr(e.msg, "8 ranks"), "srun: %s",
	   e.msg);
	setenv("SLURM_NTASKS", "8", 1);
	setenv("SLURM_PROCID", "0", 1);
	setenv("SLURM_STEP_ID", "0", 1);
	setenv("SLURM_STEP_NUM_TASKS", "1", 1);
	ok(start(&e) == 0, "srun -n 1 within a larger job");
}

static void one_rank(void)
{
	struct err e = ERR_INIT;
	struct comm c;
	float f[2] = { 1, 2 };
	double d[2] = { 3, 4 };
	char all[3] = "";

	ok(comm_init(&c, &e) == 0, "one rank");
	comm_barrier(&c);
	comm_sum_f32(&c, f, 2);
	comm_sum_f64(&c, d, 2);
	comm_broadcast(&c, d, sizeof(d), 0);
	ok(f[0] == 1 && f[1] == 2 && d[0] == 3 && d[1] == 4, "sums and broadcasts leave things as "
							     "they are");
	comm_gather(&c, all, "ab", 2);
	is_str(all, "ab", "a gather is a copy");
	comm_gather(&c, all, all, 2);
	is_str(all, "ab", "in place too");
	comm_release(&c);
}

int main(void)
{
	launchers();
	one_rank();
	return done();
}
