/* What one direction of a link does to packets, as arithmetic on times.
 *
 * A packet waits in a queue of so many bytes, is sent at a rate, may be lost, and travels for a delay:
 *
 *     arrival ──▶ [ queue ]──▶ rate ──▶ lost? ──▶ delay + jitter ──▶ due
 *                  full: dropped   ^ finish
 *
 * The queue is never stored: `free_at`, the time when all that was accepted will have been sent, says how long it is.
 * No clock, socket or packet in here: times are arguments, in nanoseconds of one clock. Holding packets until they are
 * due is left to direction.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "chance.h"

/* Loss in bursts (Gilbert and Elliott): probabilities per packet. */
struct bursts {
    double start, end; /* that a burst begins, that it ends; start 0: no bursts */
    double loss;       /* that a packet is lost within a burst */
};

/* Packets of strangers: they take their part of queue and rate, but exist as numbers only. */
struct cross {
    double rate;        /* bytes per second while they come; 0: none */
    double busy, quiet; /* mean length of the times with and without, nanoseconds; busy 0: always */
};

struct settings {
    double rate;       /* bytes per second, more than 0 */
    uint64_t delay;    /* nanoseconds */
    uint64_t jitter;   /* nanoseconds; added to the delay evenly from 0 to this, packets keep their order */
    uint64_t queue;    /* bytes */
    double loss;       /* probability per packet */
    struct bursts bursts;
    struct cross cross;
};

struct shaper {
    struct settings settings;
    struct chance chance;
    uint64_t free_at;  /* when all that was accepted will have been sent */
    uint64_t last_due;
    bool in_burst;
    struct {
        uint64_t next;   /* the stranger's next packet; 0: not begun */
        uint64_t toggle; /* when it begins or ends its pause */
        bool busy;
    } stranger;
    uint64_t cross_packets;
};

enum verdict { PASSED, QUEUE_FULL, LOST };

/* When the link has sent a packet, and when it leaves the emulator. */
struct times {
    uint64_t finish, due;
};

/* Decide about one packet that arrives now; `times` is set when it passed. Calls must come in the order of time. */
enum verdict shaper_admit(struct shaper *shaper, uint64_t now, uint32_t bytes, struct times *times);

/* Change the settings while packets wait. Those already travelling are not touched; those in the queue are sent at the
 * new rate: their times go through shaper_moved. Delay, loss and the rest hold for packets that come from now on. */
void shaper_change(struct shaper *shaper, const struct settings *settings, uint64_t now);

/* The times of a packet that waits, after the rate changed from `old_rate` at `now`. */
struct times shaper_moved(struct times times, double old_rate, double new_rate, uint64_t now);
