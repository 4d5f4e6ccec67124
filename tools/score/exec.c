#include "tools/score/score.h"

#include "libcommon/file.h"
#include "libcommon/hash.h"
#include "libcommon/outdir.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * External verifiers speak JSON lines: one sample in, one object out with prompt_id, sample_index
 * (and visit, where a prompt was drawn twice), and reward, rewards or error.  A child has one
 * sample at a time, so a time limit is one sample's, and a crash costs one sample.  Every answer is
 * kept in the journal before it counts: a rerun asks only what is not there.  The journal's first
 * line says for which samples and which command it is: another's is not believed.
 */

struct child {
	pid_t pid;
	int in, out;            /* its stdin and stdout; -1: none */
	long sample;            /* that it works on; -1: idle */
	double deadline;
	struct str line;        /* what it has said so far */
	struct str request;     /* what it is told, and how much of that it has taken */
	size_t told;
	bool fresh;             /* it has not answered yet */
};

struct exec {
	struct verdict *v;
	const struct rewards *w;
	const struct samples *set;
	bool *done;
	int journal;            /* fd; -1: nothing was written yet */
	const char *journal_path;
	char journal_name[80];  /* its first line */
	size_t journal_kept;    /* bytes of an earlier one that are believed */
	struct child *child;
	long next, left;
	struct progress show;
};

static void stop_child(struct child *c)
{
	if (c->pid <= 0)
		return;
	close(c->in);
	close(c->out);
	kill(-c->pid, SIGKILL); /* its whole group: a shell leaves children */
	waitpid(c->pid, NULL, 0);
	c->pid = 0;
	c->in = c->out = -1;
	str_cut(&c->line, 0);
}

static void start_child(struct child *c, const char *command)
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		die(EX_UNAVAILABLE, "--exec %s: no pipe: %s", command, strerror(errno));
	c->pid = fork();
	if (c->pid < 0)
		die(EX_UNAVAILABLE, "--exec %s: cannot start: %s", command, strerror(errno));
	if (!c->pid) {
		setpgid(0, 0);
		signal(SIGPIPE, SIG_DFL);
		dup2(to[0], 0);
		dup2(from[1], 1);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	setpgid(c->pid, c->pid);
	close(to[0]);
	close(from[1]);
	c->fresh = true;
	c->in = to[1];
	c->out = from[0];
	fcntl(c->in, F_SETFL, O_NONBLOCK); /* one that does not read must not hold up the others */
}

static void put_string(struct json_out *o, const char *key, const char *s, size_t n)
{
	json_key(o, key);
	json_put_strn(o, s, n);
}

/* What a verifier gets to see. */
static void put_request(struct str *out, const struct sample *s)
{
	struct json_out o = { 0 };
	struct json_doc row;
	struct err e = ERR_INIT;

	json_begin(&o, '{');
	json_add_int(&o, "prompt_id", s->prompt_id);
	json_add_int(&o, "visit", s->visit);
	json_add_int(&o, "sample_index", s->sample_index);
	json_add_int(&o, "step", s->step);
	put_string(&o, "text", s->text, s->text_bytes);
	if (s->finish_reason)
		json_add_str(&o, "finish_reason", finish_name(s->finish_reason));
	json_add_bool(&o, "truncated", s->truncated);
	if (s->row && !json_parse(&row, s->row, s->row_bytes, "row", 1, &e)) {
		json_key(&o, "row");
		json_put(&o, &row.root);
		json_release(&row);
	}
	json_end(&o);
	str_add(out, o.s.s, o.s.len);
	str_putc(out, '\n');
	json_out_release(&o);
}

static bool same_sample(const struct sample *s, const struct json_doc *d)
{
	struct err e = ERR_INIT;
	long prompt, index, visit;

	return !json_int(d, json_get(&d->root, "prompt_id"), "prompt_id", &prompt, &e) &&
	       !json_int(d, json_get(&d->root, "sample_index"), "sample_index", &index, &e) &&
	       !json_int_or(d, &d->root, "visit", s->visit, &visit, &e) &&
	       prompt == s->prompt_id && index == s->sample_index && visit == s->visit;
}

static void set_unscored(struct verdict *v, const char *why)
{
	*v = (struct verdict){ .value = (double)NAN, .reason = xasprintf("exec: %s", why) };
}

/* rewards: an object of numbers; the reward is then their sum. */
static int sum_rewards(double *sum, const struct json_doc *d, const struct json *rewards,
		       struct err *e)
{
	double x;

	*sum = 0;
	if (!json_is(rewards, JSON_OBJECT))
		return err_set(
			e, EX_DATAERR,
			"found neither reward nor rewards, wanted a number or an object of numbers");
	for (size_t i = 0; i < rewards->n; i++) {
		if (json_real(d, &rewards->member[i].value, rewards->member[i].key, &x, e))
			return -1;
		*sum += x;
	}
	return 0;
}

static void take_answer(struct verdict *v, const struct json_doc *d)
{
	const struct json *failed = json_get(&d->root, "error"),
			  *reward = json_get(&d->root, "reward");
	const struct json *text = json_get(&d->root, "extracted");
	struct err e = ERR_INIT;

	*v = (struct verdict){ 0 };
	if (failed && !json_is(failed, JSON_NULL))
		set_unscored(v, json_is(failed, JSON_STRING) ? failed->text
							     : "the verifier reports an error");
	else if (json_is(reward, JSON_NULL))
		set_unscored(v, "the verifier gave null");
	else if (reward ? json_real(d, reward, "reward", &v->value, &e)
			: sum_rewards(&v->value, d, json_get(&d->root, "rewards"), &e))
		set_unscored(v, e.msg);
	if (json_is(text, JSON_STRING))
		v->extracted = xstrndup(text->text, text->n);
}

/* The file is made, or cut to what is believed of it, with the first answer: a verifier that fails
 * at once leaves none. */
static void start_journal(struct exec *x, struct str *s)
{
	x->journal = open(x->journal_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (x->journal < 0 || ftruncate(x->journal, (off_t)x->journal_kept))
		die(EX_CANTCREAT, "%s: %s", x->journal_path, strerror(errno));
	if (x->journal_kept)
		return;
	str_puts(s, x->journal_name);
	str_putc(s, '\n');
}

static void journal_line(struct exec *x, const char *line, size_t n)
{
	struct str s = { 0 };

	if (x->journal < 0)
		start_journal(x, &s);
	str_add(&s, line, n);
	str_putc(&s, '\n');
	io_point("write");
	if (write(x->journal, s.s, s.len) != (ssize_t)s.len || fdatasync(x->journal))
		die(EX_IOERR, "%s: %s", x->journal_path, strerror(errno));
	str_release(&s);
}

static void finish(struct exec *x, long i)
{
	x->done[i] = true;
	x->left--;
	progress_add(&x->show, 1);
}

/* A whole line from a child: the answer to its sample, or nonsense, which leaves the sample
 * unscored. */
static void take_line(struct exec *x, struct child *c, size_t n)
{
	long i = c->sample;
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_parse(&d, c->line.s, n, "--exec", 1, &e)) {
		set_unscored(x->v + i, e.msg);
	} else {
		if (same_sample(x->set->s + i, &d)) {
			take_answer(x->v + i, &d);
			journal_line(x, c->line.s, n);
			c->fresh = false;
		} else {
			set_unscored(x->v + i, "the answer is for another sample");
		}
		json_release(&d);
	}
	memmove(c->line.s, c->line.s + n + 1, c->line.len - n - 1);
	str_cut(&c->line, c->line.len - n - 1);
	c->sample = -1;
	finish(x, i);
}

static void fail(struct exec *x, struct child *c, const char *why)
{
	long i = c->sample;

	stop_child(c);
	if (i < 0)
		return;
	c->sample = -1;
	set_unscored(x->v + i, why);
	finish(x, i);
}

static void tell(struct exec *x, struct child *c);

/* The shell's answer to a command that it cannot run: no other sample would fare better. */
static void check_command(const struct child *c, const char *command)
{
	siginfo_t end = { 0 };

	/* It closes its pipe a moment before it can be waited for. */
	for (int i = 0; i < 20 && !end.si_pid; i++) {
		if (i)
			usleep(5000);
		if (waitid(P_PID, (id_t)c->pid, &end, WEXITED | WNOHANG | WNOWAIT))
			return;
	}
	if (end.si_code == CLD_EXITED && (end.si_status == 126 || end.si_status == 127))
		die(EX_NOINPUT,
		    "--exec %s: the shell cannot run it (status %d): wanted a command that is there and executable",
		    command, end.si_status);
}

/*
 * It ended with a sample in hand.  One that had answered before may have ended for its own reasons,
 * so a new one gets the sample; a new one that ends too has died of it.
 */
static void died(struct exec *x, struct child *c, const char *why)
{
	if (c->fresh) {
		check_command(c, x->w->exec);
		fail(x, c, why);
		return;
	}
	stop_child(c);
	start_child(c, x->w->exec);
	c->told = 0;
	tell(x, c);
}

static void hear(struct exec *x, struct child *c)
{
	char buf[65536], *nl;
	ssize_t n = read(c->out, buf, sizeof(buf));

	if (n <= 0) {
		died(x, c, "the verifier ended");
		return;
	}
	str_add(&c->line, buf, (size_t)n);
	if (c->line.len > 16 << 20) {
		fail(x, c, "the verifier's answer is longer than 16 MiB");
		return;
	}
	while (c->sample >= 0 && (nl = memchr(c->line.s, '\n', c->line.len)))
		take_line(x, c, (size_t)(nl - c->line.s));
}

/* As much of the request as the pipe takes. */
static void tell(struct exec *x, struct child *c)
{
	while (c->told < c->request.len) {
		ssize_t n = write(c->in, c->request.s + c->told, c->request.len - c->told);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			died(x, c, "the verifier does not read");
			return;
		}
		c->told += (size_t)n;
	}
}

static void ask(struct exec *x, struct child *c)
{
	while (x->next < x->set->n && x->done[x->next])
		x->next++;
	if (x->next >= x->set->n)
		return;
	if (c->line.len) {
		log_warn("--exec %s: words after the answer (%.60s); starting it anew", x->w->exec,
			 c->line.s);
		stop_child(c);
	}
	if (c->pid <= 0)
		start_child(c, x->w->exec);
	c->sample = x->next++;
	c->deadline = seconds_now() + x->w->exec_timeout;
	c->told = 0;
	str_cut(&c->request, 0);
	put_request(&c->request, x->set->s + c->sample);
	tell(x, c);
}

static void serve(struct exec *x)
{
	long n = x->w->exec_workers;
	struct pollfd *p = xcalloc((size_t)n * 2, sizeof(*p));

	while (x->left) {
		double wait = 1;

		for (long i = 0; i < n; i++) {
			struct child *c = x->child + i;

			if (c->sample < 0)
				ask(x, c);
			p[i] = (struct pollfd){ c->sample >= 0 ? c->out : -1, POLLIN, 0 };
			p[n + i] = (struct pollfd){
				c->sample >= 0 && c->told < c->request.len ? c->in : -1, POLLOUT, 0
			};
			if (c->sample >= 0 && c->deadline - seconds_now() < wait)
				wait = c->deadline - seconds_now();
		}
		poll(p, (nfds_t)n * 2, wait > 0 ? (int)(wait * 1000) + 1 : 0);
		for (long i = 0; i < n; i++) {
			struct child *c = x->child + i;

			if (c->sample >= 0 && p[n + i].revents)
				tell(x, c);
			if (c->sample >= 0 && p[i].revents)
				hear(x, c);
			if (c->sample >= 0 && seconds_now() > c->deadline)
				fail(x, c, "time is up");
		}
	}
	free(p);
}

static void journal_name(char line[80], const struct exec *x)
{
	struct str all = { 0 };
	char hex[33];

	str_puts(&all, x->w->exec);
	for (long i = 0; i < x->set->n; i++)
		put_request(&all, x->set->s + i);
	snprintf(line, 80, "{\"journal\": \"%s\"}", digest_hex(hex, hash128(all.s, all.len)));
	str_release(&all);
}

static void take_kept(struct exec *x, const char *line, size_t n)
{
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_parse(&d, line, n, x->journal_path, 1, &e))
		return;
	for (long i = 0; i < x->set->n; i++)
		if (!x->done[i] && same_sample(x->set->s + i, &d)) {
			take_answer(x->v + i, &d);
			finish(x, i);
		}
	json_release(&d);
}

/* What an earlier, killed run was told already; gives the bytes that stay.  A last line without its
 * end is no line. */
static size_t read_journal(struct exec *x, const char *name)
{
	struct str all = { 0 };
	struct err e = ERR_INIT;
	size_t at = 0, named = strlen(name);
	char *nl;

	if (!file_exists(x->journal_path))
		return 0;
	if (file_read(&all, x->journal_path, 0, &e))
		die_err(&e);
	if (all.len <= named || memcmp(all.s, name, named) || all.s[named] != '\n') {
		log_warn("%s: it is of other samples or another verifier; beginning a new one",
			 x->journal_path);
		str_release(&all);
		return 0;
	}
	for (at = named + 1; (nl = memchr(all.s + at, '\n', all.len - at));
	     at = (size_t)(nl - all.s) + 1)
		take_kept(x, all.s + at, (size_t)(nl - all.s) - at);
	str_release(&all);
	return at;
}

static void open_journal(struct exec *x)
{
	journal_name(x->journal_name, x);
	x->journal_kept = read_journal(x, x->journal_name);
	x->journal = -1;
}

void exec_judge(struct verdict *v, const struct rewards *w, const struct samples *set,
		const char *journal)
{
	struct exec x = { .v = v, .w = w, .set = set, .left = set->n, .journal_path = journal };

	signal(SIGPIPE, SIG_IGN);
	x.done = xcalloc((size_t)set->n, sizeof(bool));
	x.child = xcalloc((size_t)w->exec_workers, sizeof(*x.child));
	progress_start(&x.show, "verifying", (double)set->n, "samples");
	open_journal(&x);
	for (long i = 0; i < w->exec_workers; i++)
		x.child[i] = (struct child){ .in = -1, .out = -1, .sample = -1 };
	serve(&x);
	for (long i = 0; i < w->exec_workers; i++) {
		stop_child(x.child + i);
		str_release(&x.child[i].line);
		str_release(&x.child[i].request);
	}
	progress_end(&x.show);
	if (x.journal >= 0)
		close(x.journal);
	signal(SIGPIPE, SIG_DFL);
	free(x.child);
	free(x.done);
}
