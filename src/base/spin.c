/* spin.c: see spin.h. */
#include "base/spin.h"

#define ROUND 16         /* waits, of which the mean is looked at */
#define SETTLE 4         /* waits until a change shows in what comes */
#define LONGEST 4        /* limits, and ... */
#define LONG 8           /* ... times the mean: what a longer wait is counted as, whatever it was for */
#define INTERVAL_MAX 256 /* rounds */

uint64_t spin_allowed(uint64_t poll, unsigned threads)
{
	return poll != TIME_NEVER && (processors_limited() || processors_usable() < threads) ? 0 : poll;
}

void spin_init(struct spin *spin, uint64_t limit)
{
	*spin = (struct spin){.limit = limit, .window = limit, .rounds = 1, .interval = 1};
	if (limit != TIME_NEVER)
		spin->most = LONGEST * limit;
}

void spin_limit(struct spin *spin, uint64_t limit)
{
	uint64_t since = spin->since;

	if (limit == spin->limit)
		return;
	spin_init(spin, limit);
	spin->since = since;
}

static void spin_change(struct spin *spin, bool sleeps)
{
	spin->sleeps = sleeps;
	spin->interval = spin->rounds = 1;
}

/* Sleeping has to be better by a tenth: a thread that polls is also ready for work that it did not wait for. */
static void end_trial(struct spin *spin, double price, bool vain)
{
	bool better = spin->sleeps ? !vain && price <= spin->usual : price <= 0.9 * spin->usual;
	unsigned grow = price > 2 * spin->usual ? 8 : 2; /* the clearer it was, the less is another one worth */

	spin->interval = MIN(grow * spin->interval, (unsigned)INTERVAL_MAX);
	spin->rounds = spin->interval;
	spin->other = better ? spin->usual : price;
	if (!better)
		return;
	spin_change(spin, !spin->sleeps);
	spin->useless = false;
	spin->usual = price;
}

/* Whether it is time for a trial: also where waits are twice as long as usual, and as long as they were the other way,
 * as others may have come to this processor, or where polling was useless and work comes quickly again. */
static bool end_round(struct spin *spin, double price, bool vain)
{
	bool news = spin->sleeps ? spin->useless && !vain : price > MAX(2 * spin->usual, spin->other);

	spin->usual = spin->usual > 0 ? (3 * spin->usual + price) / 4 : price;
	spin->most = MIN(MAX(LONG * spin->waited / ROUND, (uint64_t)TIME_US), LONGEST * spin->limit);
	spin->useless = vain;
	if (vain && !spin->sleeps) {
		spin_change(spin, true);
		return false;
	}
	return --spin->rounds == 0 || news;
}

void spin_waited(struct spin *spin, uint64_t now)
{
	uint64_t window;
	double price;
	bool vain, lost, trial;

	if (spin->limit == 0 || spin->limit == TIME_NEVER)
		return;
	if (++spin->waits <= 0) {
		spin->waited = spin->work = 0;
		return;
	}
	spin->waited += MIN(now - spin->since, spin->most);
	spin->vain += now - spin->since >= spin->limit;
	/* A trial that has waited longer than a whole round would as a rule, with as much work each, ends now. */
	lost = spin->trial && (double)spin->waited * spin->waits > ROUND * spin->usual * (double)spin->work;
	if (spin->waits < ROUND && !lost)
		return;
	price = (double)spin->waited / (double)spin->work;
	vain = 4 * spin->vain >= 3 * ROUND;
	if (spin->trial)
		end_trial(spin, price, vain);
	trial = !spin->trial && end_round(spin, price, vain);
	window = spin->sleeps != trial ? 0 : spin->limit;
	spin->waits = spin->window == window ? 0 : -SETTLE;
	spin->vain = 0;
	spin->waited = spin->work = 0;
	spin->window = window;
	spin->trial = trial;
}
