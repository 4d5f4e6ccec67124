#include "kernels/loss.h"
#include "tests/lib/tap.h"

static struct loss_config plain(void)
{
	return (struct loss_config){ .clip_min = 0.2, .clip_max = 0.28, .kl = KL_K3, .kl_input = 20, .kl_output = 10 };
}

static double one(double *grad, double lp, double prev, double a, struct loss_config c)
{
	float l = (float)lp, p = (float)prev, adv = (float)a, w = 1, g = 0;
	struct loss_sums s;

	loss_sums_init(&s);
	loss_add(&g, &s, &(struct loss_tokens){ .n = 1, .lp = &l, .prev = &p, .advantage = &adv, .w_policy = &w }, &c);
	*grad = (double)g;
	return s.policy;
}

static void clip_cases(void)
{
	static const struct { double a, r, l, g; } c[] = {
		{ 1, 1.5, -1.28, 0 }, { -1, 0.5, 0.8, 0 }, { -1, 1.5, 1.5, 1.5 }, { 1, 0.5, -0.5, -0.5 }, { 1, 1, -1, -1 },
	};
	double g, l;

	for (int i = 0; i < 5; i++) {
		l = one(&g, log(c[i].r), 0, c[i].a, plain());
		is_num(l, c[i].l, 1e-6, "clip: A %g, ratio %g: loss", c[i].a, c[i].r);
		is_num(g, c[i].g, 1e-6, "clip: A %g, ratio %g: gradient", c[i].a, c[i].r);
	}
	struct loss_config dual = plain();
	dual.clip_c = 3;
	is_num(one(&g, log(5), 0, -1, dual), 3, 1e-6, "dual clip caps the loss");
	is_num(g, 0, 0, "dual clip ends the gradient");
}

static void kl_case(void)
{
	float lp = -2, ref = -1, w = 1, g = 0;
	struct loss_config c = plain();
	struct loss_sums s;

	c.beta = 0.1;
	loss_sums_init(&s);
	loss_add(&g, &s, &(struct loss_tokens){ .n = 1, .lp = &lp, .ref = &ref, .w_kl = &w }, &c);
	is_num(s.kl, 0.07182818, 1e-7, "k3: loss");
	is_num(g, -0.17182818, 1e-7, "k3: gradient raises the log-probability");
	float gen = -3;
	c.kl_on_policy = true;
	g = 0;
	loss_sums_init(&s);
	loss_add(&g, &s, &(struct loss_tokens){ .n = 1, .lp = &lp, .gen = &gen, .ref = &ref, .w_kl = &w }, &c);
	is_num(s.kl, 0.07182818 * 2.7182818, 1e-7, "k3 weighed by policy over sampler: loss");
	is_num(g, -0.17182818 * 2.7182818, 1e-7, "and gradient");
	gen = -1e30f;
	g = 0;
	loss_sums_init(&s);
	loss_add(&g, &s, &(struct loss_tokens){ .n = 1, .lp = &lp, .gen = &gen, .ref = &ref, .w_kl = &w }, &c);
	ok(s.kl == 0 && g == 0, "a weight that is not finite is 0");
	c.kl_on_policy = false;
	lp = ref;
	g = 0;
	loss_sums_init(&s);
	loss_add(&g, &s, &(struct loss_tokens){ .n = 1, .lp = &lp, .ref = &ref, .w_kl = &w }, &c);
	ok(s.kl == 0 && g == 0, "policy = reference: exactly nothing");
}

enum { N = 5 };
static const float PREV[N] = { -1.1f, -0.4f, -2.3f, -0.9f, -1.7f }, GEN[N] = { -1.0f, -0.5f, -2.2f, -0.8f, -1.9f };
static const float REF[N] = { -1.3f, -0.2f, -2.0f, -1.5f, -1.2f }, ADV[N] = { 0.7f, -1.2f, 0.4f, 0.9f, -0.6f };
static const float W[N] = { 0.3f, 0.2f, 0, 0.1f, 0.4f };

static double total(float *dlp, const float *lp, const struct loss_config *c)
{
	struct loss_sums s;

	memset(dlp, 0, N * sizeof(float));
	loss_sums_init(&s);
	loss_add(dlp, &s, &(struct loss_tokens){ N, lp, PREV, GEN, REF, ADV, W, W, W }, c);
	return s.policy + s.kl + s.nll;
}

/* Holds what the estimator holds constant: cispo, on_policy and kl_on_policy are left to the cases above. */
static void finite_differences(enum policy_loss kind, enum kl_type kl)
{
	struct loss_config c = plain();
	float lp[N] = { -1.05f, -0.35f, NAN, -0.95f, -1.72f }, g[N], scratch[N];
	double worst = 0;

	c.policy = kind;
	c.kl = kl;
	c.beta = 0.3;
	total(g, lp, &c);
	for (int i = 0; i < N; i++) {
		float keep = lp[i], up = keep + 1e-2f, down = keep - 1e-2f;

		if (W[i] == 0)
			continue;
		lp[i] = up;
		double high = total(scratch, lp, &c);
		lp[i] = down;
		double low = total(scratch, lp, &c);
		lp[i] = keep;
		worst = fmax(worst, fabs((high - low) / ((double)up - (double)down) - (double)g[i]));
	}
	ok(worst < 1e-4 && g[2] == 0, "gradient of loss %d with k%d: %g from finite differences", (int)kind, (int)kl + 1, worst);
}

int main(void)
{
	float lp[3] = { -1, -2, -3 }, w[3] = { .25f, 0, .25f }, g[3] = { 0 };
	struct loss_config c = plain();
	struct loss_sums s;
	double grad;

	clip_cases();
	kl_case();
	for (int kl = KL_K1; kl <= KL_K3; kl++) {
		finite_differences(LOSS_CLIPPED, (enum kl_type)kl);
		finite_differences(LOSS_SEQUENCE, (enum kl_type)kl);
		finite_differences(LOSS_REINFORCE, (enum kl_type)kl);
	}
	loss_sums_init(&s);
	loss_add(g, &s, &(struct loss_tokens){ .n = 3, .lp = lp, .w_nll = w }, &c);
	is_num(s.nll, 1, 1e-7, "NLL: sum of w * -lp");
	ok(g[0] == -.25f && g[1] == 0 && g[2] == -.25f, "NLL: gradients are the weights");
	c.policy = LOSS_ON_POLICY;
	is_num(one(&grad, -0.3, -5, 2, c), -2, 1e-6, "on policy: the ratio is 1 whatever was recorded");
	is_num(grad, -2, 1e-6, "on policy: gradient -A");
	c.policy = LOSS_CISPO;
	is_num(one(&grad, -0.3, -1.3, 2, c), -2 * 1.28 * -0.3, 1e-6, "cispo: clipped weight held constant");
	is_num(grad, -2.56, 1e-6, "cispo: gradient");
	return done();
}
