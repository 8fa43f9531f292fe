/* One direction of a link: reads packets from one TUN device, holds them, writes them to another when they are due.
 *
 * The shaper decides what happens to a packet; the counters here become the testbed's statistics.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "shaper.h"

struct packet; /* a frame that waits until it is due */

struct counters {
    uint64_t packets, bytes; /* segments that left, and their bytes with IP headers */
    uint64_t queue_drops, loss_drops;
    uint64_t late;           /* packets that left more than 1 ms after they were due, or may have */
    uint64_t worst_late;     /* nanoseconds */
    uint64_t rejected;       /* packets that the kernel refused, or that the emulator cannot parse */
};

struct direction {
    int from, to; /* TUN devices */
    struct shaper shaper;
    struct packet *head, *tail;
    struct counters counters;
};

uint64_t now_ns(void);

/* Read a limited number of arrived packets, and pass them to the shaper. `overdue`: this call is late, so the packets
 * may have waited to be read. Returns whether all arrived packets were read. */
bool direction_receive(struct direction *direction, bool overdue);

/* Write a limited number of packets that are due. Returns when the next packet is due; UINT64_MAX: no packet waits. */
uint64_t direction_release(struct direction *direction);

/* Change the settings, for waiting packets too. */
void direction_change(struct direction *direction, const struct settings *settings);
