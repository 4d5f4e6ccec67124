#ifndef KERNELS_ADVANTAGE_H
#define KERNELS_ADVANTAGE_H

/*
 * GRPO advantages of one group: the n samples of one draw of a prompt (Shao et al. 2024; leave-one-out: Ahmadian et al. 2024).
 *
 * Over the set S of scored samples, without sample i where leave_one_out:
 *	b_i = mean_S r,   sigma_i = sqrt(sum_S (r - b_i)^2 / (|S| - 1)),   A_i = r_i - b_i
 *	normalize:  A_i /= sigma_i + 1e-6  unless sigma_i <= 1e-6 max(1, |b_i|), where A_i stays undivided
 * in float64 from deviations.  A sample that is not scored (NaN) has A = 0 and takes no part; fewer than two scored:
 * all 0.  Sets of one (leave_one_out with two scored) have sigma 0.
 */

#include <stdbool.h>

void group_advantages(double *a, const double *reward, long n, bool leave_one_out, bool normalize);
/* Sample standard deviation over the scored of a group (0 for fewer than two): what dynamic sampling looks at. */
double group_std(const double *reward, long n);

#endif
