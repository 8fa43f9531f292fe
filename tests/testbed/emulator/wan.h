/* All hosts and links of a WAN, and the commands that create and change them.
 *
 * One thread does all work, so there are no locks; a gigabit per second takes a fifth of a processor.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "direction.h"
#include "host.h"

#define MOST_HOSTS 250
#define MOST_LINKS 250

struct wan {
    int epoll; /* contains the device from which each direction reads, with the number of the direction */
    struct host hosts[MOST_HOSTS];
    uint64_t missed_before[MOST_HOSTS]; /* at the last reset */
    uint32_t host_count;
    struct direction directions[2 * MOST_LINKS]; /* of link n: 2n from its first to its second host, 2n + 1 opposite */
    uint32_t direction_count;
};

/* Carry out one command and write the answer: "ok ..." or "error ...". Commands:
 *
 *     host NAME                       create a host; answer "ok FD FD": its network and name namespaces in /proc/PID/fd
 *     link HOST HOST DEVICE DEVICE    join two hosts (by number, in order of creation) with devices of these names;
 *                                     both directions must be set before the devices are up
 *     set DIRECTION rate=... ...      change a direction (by number); all settings, in the order of control.c
 *     seed NUMBER                     restart the random numbers
 *     stats                           answer "ok", then a line of counters for each direction
 *     missed                          answer "ok NUMBER": packets that the kernel dropped because they were not read in
 *                                     time; takes milliseconds
 *     reset                           set all counters to 0
 */
void wan_command(struct wan *wan, const char *command, char *answer, size_t room);
