#ifndef LIBCOMMON_COMM_DEVICE_H
#define LIBCOMMON_COMM_DEVICE_H

/*
 * What lies under the comm_dev_ functions of comm.h where the backend's memory is a GPU's (kernels/cuda/ranks.cu, over NCCL).  All work
 * is put into the device's streams, in order with the kernels', and nothing waits for it but the kernels that are launched after.
 *
 * A group is joined by its members at their first call; a rank of it gives the id, which goes to the others over comm.h.  Between two
 * ranks each direction of messages is a group of its own, so that no message waits behind another direction's.
 */

#include "libcommon/comm.h"

enum { COMM_ID = 128, COMM_DEVICE_NAME = 64 };

struct comm_device {
	/* which: tells this device from others of the host.  timeout_s: of CAIRN_COMM_TIMEOUT; 0: for ever. */
	int (*start)(char which[COMM_DEVICE_NAME], long timeout_s, struct err *e);
	void (*id)(char id[COMM_ID]);
	void *(*join)(const char id[COMM_ID], int rank, int size, const char *name);    /* waits for the others; name: a literal */
	void (*leave)(void *group);
	void (*copy)(void *to, const void *from, size_t bytes);
	/* As in comm.h, for groups of two ranks and more. */
	void (*broadcast)(void *group, void *p, size_t bytes, int root);
	void (*gather_v)(void *group, void *all, const void *mine, const size_t *bytes);
	void (*all_to_all)(void *group, void *recv, const size_t *recv_bytes, const void *send, const size_t *send_bytes);
	void (*sum_f32)(void *group, float *x, size_t n);
	/* beside: on a stream beside the kernels'; what it gives goes to wait().  Else NULL. */
	void *(*scatter_sum_f32)(void *group, float *out, const float *in, const size_t *count, bool beside);
	void *(*send)(void *group, const void *p, size_t bytes);        /* to rank 1 of two, from rank 0 */
	void *(*recv)(void *group, void *p, size_t bytes);
	void (*wait)(void *request);    /* kernels that are launched from now on */
	void (*poll)(void);             /* while the host waits for something else */
	void (*drain)(void);            /* until all that was called is done */
};

/* comm_device.c, for the files of comm.h */
void comm_device_poll(void);
void comm_device_leave(struct comm *c);

#endif
