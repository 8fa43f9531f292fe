/* One direction of a link: reads packets from one TUN device, holds them, writes them to another when they are due.
 *
 * What happens to a packet is decided by the shaper; what is counted here is what the numbers of the testbed rest on.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "shaper.h"

struct packet; /* one frame that waits for its time */

struct counters {
    uint64_t packets, bytes; /* that left, as on the wire: segments, with their IP headers */
    uint64_t queue_drops, loss_drops;
    uint64_t late;           /* packets that left more than 1 ms after they were due, or may have */
    uint64_t worst_late;     /* nanoseconds */
    uint64_t rejected;       /* packets that the kernel did not take, or that are none of ours */
};

struct direction {
    int from, to; /* TUN devices */
    struct shaper shaper;
    struct packet *head, *tail;
    struct counters counters;
};

uint64_t now_ns(void);

/* Read what has arrived, up to a small number, and decide about it. `overdue`: we should have looked earlier, so that
 * these packets may have waited for us. Returns whether that was all. */
bool direction_receive(struct direction *direction, bool overdue);

/* Write what is due, up to a small number. Returns when the next packet is due; UINT64_MAX: none waits. */
uint64_t direction_release(struct direction *direction);

/* Change the settings, for waiting packets too. */
void direction_change(struct direction *direction, const struct settings *settings);
