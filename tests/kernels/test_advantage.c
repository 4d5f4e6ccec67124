#include "kernels/advantage.h"
#include "tests/lib/tap.h"

static void check(const char *what, const double *r, const double *want, long n, bool loo, bool norm, double tol)
{
	double a[16], worst = 0;

	group_advantages(a, r, n, loo, norm);
	for (long i = 0; i < n; i++)
		worst = fmax(worst, fabs(a[i] - want[i]));
	ok(worst <= tol, "%s: largest difference %g", what, worst);
}

int main(void)
{
	double same[10], zero[10] = { 0 }, none[3] = { NAN, NAN, NAN }, lone[3] = { 1, NAN, NAN }, f = (double)0.35f;

	check("mean only, one unscored", (double[]){ 1, NAN, 0, 1 }, (double[]){ 1 / 3., 0, -2 / 3., 1 / 3. }, 4, false, false, 1e-12);
	check("with deviation, one unscored", (double[]){ 1, NAN, 0, 1 }, (double[]){ 0.57735027, 0, -1.15470054, 0.57735027 }, 4,
	      false, true, 1e-5);
	check("nothing scored", none, zero, 3, false, true, 0);
	check("one scored", lone, zero, 3, true, true, 0);
	check("leave one out, seven equal and one", (double[]){ f, f, f, f, f, f, f, (double)0.95f },
	      (double[]){ -0.37796447, -0.37796447, -0.37796447, -0.37796447, -0.37796447, -0.37796447, -0.37796447, 0.6 }, 8,
	      true, true, 1e-5);
	for (int i = 0; i < 10; i++)
		same[i] = (double)0.1f;
	check("ten equal rewards", same, zero, 10, false, true, 0);
	check("a pair, leave one out", (double[]){ 1, 0 }, (double[]){ 1, -1 }, 2, true, true, 1e-12);
	check("per prompt: p", (double[]){ 1, 0 }, (double[]){ .5, -.5 }, 2, false, false, 1e-12);
	check("per prompt: q", (double[]){ 1, 1 }, zero, 2, false, false, 0);
	is_num(group_std((double[]){ 1, NAN, 0, 1 }, 4), 0.57735027, 1e-8, "deviation of the scored");
	return done();
}
