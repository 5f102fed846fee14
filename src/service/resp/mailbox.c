/* mailbox.c: what one worker's thread says to another: notes in a list under a lock, and an eventfd that wakes it. */
#include "service/resp/resp.h"

#include <sys/eventfd.h>
#include <unistd.h>

#define MAILBOX_MAX (64 * MIB) /* of notes that wait for a thread */

int resp_mailbox_init(struct resp_mailbox *mailbox)
{
	int rc;

	mailbox->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (mailbox->event < 0) {
		rc = -errno;
		log_error("resp", "cannot make an eventfd: %m; raise ulimit -n");
		return rc;
	}
	pthread_mutex_init(&mailbox->lock, NULL);
	list_init(&mailbox->notes);
	return 0;
}

/* The notes that came are carried out, without the lock. */
static void deliver_notes(struct resp_mailbox *mailbox, struct resp_thread *to)
{
	struct list *pos, *next, notes;

	list_init(&notes);
	pthread_mutex_lock(&mailbox->lock);
	list_prepend(&notes, &mailbox->notes);
	mailbox->bytes = 0;
	atomic_store_explicit(&mailbox->any, false, memory_order_relaxed);
	pthread_mutex_unlock(&mailbox->lock);
	list_for_each_safe (pos, next, &notes) {
		struct resp_note *note = container_of(pos, struct resp_note, node);

		list_del(&note->node);
		note->fn(to, note);
	}
}

void resp_mailbox_clear(struct resp_mailbox *mailbox)
{
	deliver_notes(mailbox, NULL);
	close(mailbox->event);
	pthread_mutex_destroy(&mailbox->lock);
}

bool resp_post(struct resp_thread *to, struct resp_note *note)
{
	struct resp_mailbox *mailbox = &to->mailbox;
	const uint64_t one = 1;
	bool first, fits;

	pthread_mutex_lock(&mailbox->lock);
	first = list_empty(&mailbox->notes);
	fits = !note->bytes || mailbox->bytes + note->bytes <= MAILBOX_MAX;
	if (fits) {
		mailbox->bytes += note->bytes;
		list_add_tail(&mailbox->notes, &note->node);
		atomic_store_explicit(&mailbox->any, true, memory_order_release);
	}
	pthread_mutex_unlock(&mailbox->lock);
	/* It cannot fail: the number stays far below its limit. */
	if (fits && first && write(mailbox->event, &one, sizeof(one)) != (ssize_t)sizeof(one))
		log_error("resp", "cannot wake a thread: %m");
	return fits;
}

void resp_mailbox_look(struct resp_thread *thread)
{
	if (unlikely(atomic_load_explicit(&thread->mailbox.any, memory_order_acquire)))
		deliver_notes(&thread->mailbox, thread);
}

int resp_mailbox_fd(const struct service_part *part)
{
	return container_of(part, struct resp_thread, part)->mailbox.event;
}

void resp_mailbox_readable(struct service_part *part)
{
	struct resp_thread *thread = container_of(part, struct resp_thread, part);
	uint64_t number;

	must(service_part_is_mine(part));
	/* Read first: a note that comes behind it wakes once more. */
	if (read(thread->mailbox.event, &number, sizeof(number)) < 0 && errno != EAGAIN)
		log_error("resp", "cannot read from an eventfd: %m");
	deliver_notes(&thread->mailbox, thread);
}
