/* The arithmetic of a link; shaper.h says what it means. */
#include "shaper.h"

#define SECOND 1e9
#define STRANGERS_BYTES 1500

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Put a packet into the queue, and reserve its time on the wire; return false if the queue has no room. */
static bool occupy(struct shaper *shaper, uint64_t now, uint32_t bytes)
{
    const struct settings *s = &shaper->settings;
    double waiting = shaper->free_at > now ? (double)(shaper->free_at - now) * s->rate / SECOND : 0;
    if (waiting > 0 && waiting + bytes > (double)s->queue)
        return false;
    shaper->free_at = later(shaper->free_at, now) + (uint64_t)(bytes * SECOND / s->rate);
    return true;
}

/* The times of cross traffic's packets are memoryless. So packets that cannot be in the queue any more are skipped, and
 * catching up after a long pause computes no more packets than fit into the queue. */
static void forget_strangers(struct shaper *shaper, uint64_t now)
{
    const struct settings *s = &shaper->settings;
    uint64_t horizon = (uint64_t)((double)s->queue * SECOND / s->rate);
    uint64_t since = now > horizon ? now - horizon : 0;
    if (shaper->stranger.next < since)
        shaper->stranger.next = shaper->stranger.toggle < since ? shaper->stranger.toggle : since;
}

/* Begin or end a pause of the cross traffic. */
static void toggle(struct shaper *shaper)
{
    const struct cross *cross = &shaper->settings.cross;
    uint64_t then = shaper->stranger.toggle;
    shaper->stranger.busy = !shaper->stranger.busy;
    double mean = shaper->stranger.busy ? cross->busy : cross->quiet;
    shaper->stranger.toggle = then + (uint64_t)chance_exponential(&shaper->chance, mean);
    shaper->stranger.next = shaper->stranger.busy ? then : shaper->stranger.toggle;
}

/* Admit the packets of cross traffic up to now. */
static void cross_until(struct shaper *shaper, uint64_t now)
{
    const struct cross *cross = &shaper->settings.cross;
    if (cross->rate <= 0)
        return;
    if (!shaper->stranger.next) {
        shaper->stranger.next = now;
        shaper->stranger.busy = true;
        shaper->stranger.toggle =
            cross->busy > 0 ? now + (uint64_t)chance_exponential(&shaper->chance, cross->busy) : UINT64_MAX;
    }
    double gap = STRANGERS_BYTES * SECOND / cross->rate;
    while (shaper->stranger.next <= now) {
        forget_strangers(shaper, now);
        if (shaper->stranger.next >= shaper->stranger.toggle) {
            toggle(shaper);
            continue;
        }
        shaper->cross_packets += occupy(shaper, shaper->stranger.next, STRANGERS_BYTES);
        shaper->stranger.next += 1 + (uint64_t)chance_exponential(&shaper->chance, gap);
    }
}

/* Begin or end a burst at random; return whether the packet is lost. */
static bool lost(struct shaper *shaper)
{
    const struct settings *s = &shaper->settings;
    if (s->bursts.start > 0) {
        double change = shaper->in_burst ? s->bursts.end : s->bursts.start;
        if (chance_uniform(&shaper->chance) < change)
            shaper->in_burst = !shaper->in_burst;
        if (shaper->in_burst && chance_uniform(&shaper->chance) < s->bursts.loss)
            return true;
    }
    return s->loss > 0 && chance_uniform(&shaper->chance) < s->loss;
}

enum verdict shaper_admit(struct shaper *shaper, uint64_t now, uint32_t bytes, struct times *times)
{
    const struct settings *s = &shaper->settings;
    cross_until(shaper, now);
    if (!occupy(shaper, now, bytes))
        return QUEUE_FULL;
    if (lost(shaper)) /* lost on the wire, so it has used time there */
        return LOST;
    uint64_t due = shaper->free_at + s->delay;
    if (s->jitter)
        due += (uint64_t)(chance_uniform(&shaper->chance) * (double)s->jitter);
    shaper->last_due = later(shaper->last_due, due);
    *times = (struct times){.finish = shaper->free_at, .due = shaper->last_due};
    return PASSED;
}

void shaper_change(struct shaper *shaper, const struct settings *settings, uint64_t now)
{
    struct times all = {.finish = shaper->free_at};
    shaper->free_at = shaper_moved(all, shaper->settings.rate, settings->rate, now).finish;
    shaper->settings = *settings;
    shaper->in_burst = shaper->in_burst && settings->bursts.start > 0;
    shaper->stranger.next = 0;
}

struct times shaper_moved(struct times times, double old_rate, double new_rate, uint64_t now)
{
    if (times.finish <= now)
        return times;
    uint64_t finish = now + (uint64_t)((double)(times.finish - now) * old_rate / new_rate);
    return (struct times){.finish = finish, .due = times.due + finish - times.finish};
}
