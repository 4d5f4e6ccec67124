#include "kernels/advantage.h"

#include <math.h>

struct spread { double mean, sigma; long n; };

/* Mean and sample deviation of the scored but `skip`. */
static struct spread spread_of(const double *r, long n, long skip)
{
	struct spread s = { 0 };
	double dev = 0;

	for (long i = 0; i < n; i++)
		if (i != skip && !isnan(r[i])) {
			s.mean += r[i];
			s.n++;
		}
	if (!s.n)
		return s;
	s.mean /= (double)s.n;
	for (long i = 0; i < n; i++)
		if (i != skip && !isnan(r[i]))
			dev += (r[i] - s.mean) * (r[i] - s.mean);
	if (s.n > 1)
		s.sigma = sqrt(dev / (double)(s.n - 1));
	return s;
}

void group_advantages(double *a, const double *reward, long n, bool leave_one_out, bool normalize)
{
	struct spread all = spread_of(reward, n, -1);

	for (long i = 0; i < n; i++) {
		struct spread s = leave_one_out ? spread_of(reward, n, i) : all;

		a[i] = 0;
		if (isnan(reward[i]) || all.n < 2)
			continue;
		a[i] = reward[i] - s.mean;
		if (s.sigma <= 1e-6 * fmax(1, fabs(s.mean))) {
			/* No spread but rounding: what is left of a constant group is nothing. */
			if (fabs(a[i]) <= 1e-6 * fmax(1, fabs(s.mean)))
				a[i] = 0;
		} else if (normalize) {
			a[i] /= s.sigma + 1e-6;
		}
	}
}

double group_std(const double *reward, long n)
{
	return spread_of(reward, n, -1).sigma;
}
