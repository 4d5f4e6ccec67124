#include "libcommon/mesh.h"

#include <string.h>

#include "libcommon/xalloc.h"

static void copy_layout(struct layout *to, const struct layout *l)
{
	size_t bytes = (size_t)l->layers * sizeof(*l->stage_of_layer);

	*to = *l;
	if (l->stage_of_layer) {
		to->stage_of_layer = xmalloc(bytes ? bytes : 1);
		memcpy(to->stage_of_layer, l->stage_of_layer, bytes);
	}
}

static int check_world(const struct layout *l, int ranks, struct err *e)
{
	long wanted = layout_world(l), stage = l->tp * l->cp * l->dp;

	if (stage % (l->etp * l->ep))
		return err_set(e, EX_USAGE,
			       "the layout has etp %ld x ep %ld, which does not divide the %ld ranks of a stage (tp %ld x "
			       "cp %ld x dp %ld)", l->etp, l->ep, stage, l->tp, l->cp, l->dp);
	if (wanted == ranks)
		return 0;
	return err_set(e, EX_USAGE,
		       "the layout tp %ld x cp %ld x dp %ld x pp %ld has %ld rank%s, but there %s %d: run it as "
		       "`mpirun -n %ld cairn %s ...`", l->tp, l->cp, l->dp, l->pp, wanted, wanted == 1 ? "" : "s",
		       ranks == 1 ? "is" : "are", ranks, wanted, program);
}

/*
 * The group of those that share all coordinates but some: its color is the lowest rank among them,
 * whose coordinate is 0 there.  Ranks ascend with each coordinate, so the order by rank is the order wanted.
 */
static void cut(struct comm *out, struct mesh *m, long ranks, long lowest, const char *name)
{
	*out = (struct comm){ .size = 1, .name = name };
	if (ranks == 1)
		return;
	comm_split(out, &m->world, (int)lowest, 0, name);
	if (out->size != ranks)
		bug("group %s has %d ranks, wanted %ld", name, out->size, ranks);
}

static void cut_dense(struct mesh *m)
{
	const struct layout *l = &m->layout;
	struct place p = m->at;

	p.tp = 0;
	cut(&m->tp, m, l->tp, layout_rank(l, &p), "tp");
	p = m->at;
	p.cp = 0;
	cut(&m->cp, m, l->cp, layout_rank(l, &p), "cp");
	p.dp = 0;
	cut(&m->grad, m, l->cp * l->dp, layout_rank(l, &p), "grad");
	p.tp = 0;
	cut(&m->stage, m, l->tp * l->cp * l->dp, layout_rank(l, &p), "stage");
	p = m->at;
	p.dp = 0;
	cut(&m->dp, m, l->dp, layout_rank(l, &p), "dp");
	p = m->at;
	p.pp = 0;
	cut(&m->pp, m, l->pp, layout_rank(l, &p), "pp");
}

/* Ranks of the stages between are alone, each with a color that no other has. */
static void cut_ends(struct mesh *m)
{
	const struct layout *l = &m->layout;
	struct place p = m->at;
	bool end = p.pp == 0 || p.pp == l->pp - 1;
	int alone = m->world.size + m->world.rank;

	m->ends = (struct comm){ .size = 1, .name = "ends" };
	if (l->pp == 1)
		return;
	p.pp = 0;
	comm_split(&m->ends, &m->world, end ? (int)layout_rank(l, &p) : alone, 0, "ends");
}

static void cut_expert(struct mesh *m)
{
	const struct layout *l = &m->layout;
	struct place p = m->at;

	p.etp = 0;
	cut(&m->etp, m, l->etp, layout_expert_rank(l, &p), "etp");
	p = m->at;
	p.ep = 0;
	cut(&m->ep, m, l->ep, layout_expert_rank(l, &p), "ep");
	p = m->at;
	p.edp = 0;
	cut(&m->edp, m, layout_edp(l), layout_expert_rank(l, &p), "edp");
}

int mesh_init(struct mesh *m, const struct layout *l, const struct comm *world, struct err *e)
{
	memset(m, 0, sizeof(*m));
	if (check_world(l, world->size, e))
		return -1;
	copy_layout(&m->layout, l);
	m->at = layout_place(l, world->rank);
	m->world = *world;
	cut_dense(m);
	cut_ends(m);
	cut_expert(m);
	return 0;
}

void mesh_one(struct mesh *m, long layers)
{
	static const struct comm one = { .size = 1, .name = "world" };
	struct layout l;
	struct err e = ERR_INIT;

	layout_init(&l, layers);
	if (mesh_init(m, &l, &one, &e))
		bug("%s", e.msg);
}

void mesh_release(struct mesh *m)
{
	struct comm *group[] = { &m->tp, &m->cp,    &m->dp,   &m->grad, &m->pp,
				 &m->stage, &m->ends, &m->etp,  &m->ep,   &m->edp };

	for (size_t i = 0; i < sizeof(group) / sizeof(*group); i++)
		comm_release(group[i]);
	layout_release(&m->layout);
}
