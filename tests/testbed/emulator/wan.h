/* All hosts and links, and the commands that make and change them.
 *
 * One thread does everything, so nothing is locked: a gigabit takes a fifth of a processor.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "direction.h"
#include "host.h"

#define MOST_HOSTS 250
#define MOST_LINKS 250

struct wan {
    int epoll; /* the directions' devices are added to it, with their number */
    struct host hosts[MOST_HOSTS];
    uint64_t missed_before[MOST_HOSTS]; /* at the last reset */
    uint32_t host_count;
    struct direction directions[2 * MOST_LINKS]; /* of link n: 2n from its first to its second host, and 2n + 1 back */
    uint32_t direction_count;
};

/* Carry out one command and write the answer: "ok ..." or "error ...". Commands:
 *
 *     host NAME                       make a host; "ok FD FD": its namespaces for network and name, in /proc/PID/fd
 *     link HOST HOST DEVICE DEVICE    join two hosts (numbers, in order of making) by devices of these names;
 *                                     its directions must be set before the devices are up
 *     set DIRECTION rate=... ...      settings of a direction (its number); all of them, in the order of control.c
 *     seed NUMBER                     begin new series of random numbers
 *     stats                           "ok", then a line of counters for each direction
 *     missed                          "ok NUMBER": packets that came faster than they were read; takes milliseconds
 *     reset                           set all counters to 0
 */
void wan_command(struct wan *wan, const char *command, char *answer, size_t room);
