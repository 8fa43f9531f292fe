/* The effects of one direction of a link on packets, as arithmetic on times.
 *
 * A packet waits in a queue of limited size, is sent at a rate, may be lost, and travels for a delay:
 *
 *     arrival ──▶ [ queue ]──▶ rate ──▶ lost? ──▶ delay + jitter ──▶ due
 *                  full: dropped   ^ finish
 *
 * The queue is not stored: its length follows from `free_at`, the time when all accepted packets will have been sent.
 * The shaper uses no clock, socket or packet: times are arguments, in nanoseconds of one clock. direction.c holds the
 * packets until they are due.
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

/* Cross traffic: its packets take part of queue and rate, but exist only in this computation. */
struct cross {
    double rate;        /* bytes per second in a busy time; 0: no cross traffic */
    double busy, quiet; /* mean length of busy times and of pauses, nanoseconds; busy 0: no pauses */
};

struct settings {
    double rate;       /* bytes per second, more than 0 */
    uint64_t delay;    /* nanoseconds */
    uint64_t jitter;   /* nanoseconds; largest random addition to the delay, uniformly distributed; order is kept */
    uint64_t queue;    /* bytes */
    double loss;       /* probability per packet */
    struct bursts bursts;
    struct cross cross;
};

struct shaper {
    struct settings settings;
    struct chance chance;
    uint64_t free_at;  /* when all accepted packets will have been sent */
    uint64_t last_due;
    bool in_burst;
    struct {
        uint64_t next;   /* time of the next packet of cross traffic; 0: not begun */
        uint64_t toggle; /* when its next pause begins or ends */
        bool busy;
    } stranger;
    uint64_t cross_packets;
};

enum verdict { PASSED, QUEUE_FULL, LOST };

/* `finish`: when the link has sent a packet; `due`: when the packet leaves the emulator. */
struct times {
    uint64_t finish, due;
};

/* Decide about one packet that arrives now; `times` is set when it passed. Calls must come in the order of time. */
enum verdict shaper_admit(struct shaper *shaper, uint64_t now, uint32_t bytes, struct times *times);

/* Change the settings while packets wait. A new rate also applies to packets in the queue: the caller passes their
 * times through shaper_moved. All other settings apply only to packets that arrive later. */
void shaper_change(struct shaper *shaper, const struct settings *settings, uint64_t now);

/* Return the new times of a waiting packet after the rate changed at `now`. */
struct times shaper_moved(struct times times, double old_rate, double new_rate, uint64_t now);
