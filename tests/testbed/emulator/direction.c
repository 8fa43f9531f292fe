/* One direction of a link; direction.h says what it does. */
#include "direction.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"

/* Limit of packets in one call, so that a busy direction does not delay the others. */
#define BATCH 16
#define LATE_NS 1000000
/* Adjacent segments of a super-packet that are due within this time are forwarded together, when the last one is due.
 * The kernel's work depends on the number of packets, so this determines how much a processor can carry. */
#define TOGETHER_NS 1000000

struct packet {
    struct packet *next;
    struct times times;
    uint32_t segments, wire_bytes;
    size_t length;
    uint8_t bytes[];
};

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A run of adjacent segments that are forwarded together. */
struct run {
    uint32_t first, end, wire_bytes;
    uint64_t began;
    struct times times; /* of the last one */
};

/* Append a run to the list of waiting packets, and begin a new run. */
static void enqueue(struct direction *direction, const struct frame *frame, struct run *run)
{
    if (run->first == run->end)
        return;
    struct packet *packet = malloc(sizeof *packet + frame->length);
    if (!packet) {
        perror("emulator: no memory for packets");
        exit(1);
    }
    packet->next = NULL;
    packet->times = run->times;
    packet->segments = run->end - run->first;
    packet->wire_bytes = run->wire_bytes;
    packet->length = frame_cut(frame, run->first, run->end, packet->bytes);
    if (direction->tail)
        direction->tail->next = packet;
    else
        direction->head = packet;
    direction->tail = packet;
    *run = (struct run){.first = run->end, .end = run->end};
}

static void admit(struct direction *direction, const struct frame *frame, uint64_t now)
{
    struct run run = {0};
    for (uint32_t i = 0; i < frame->segments; i++) {
        struct times times;
        uint32_t bytes = frame_wire_bytes(frame, i);
        enum verdict verdict = shaper_admit(&direction->shaper, now, bytes, &times);
        direction->counters.queue_drops += verdict == QUEUE_FULL;
        direction->counters.loss_drops += verdict == LOST;
        bool apart = verdict != PASSED || times.due - run.began > TOGETHER_NS;
        if (apart)
            enqueue(direction, frame, &run);
        if (verdict != PASSED)
            continue;
        if (run.wire_bytes == 0)
            run = (struct run){.first = i, .began = times.due};
        run.end = i + 1;
        run.wire_bytes += bytes;
        run.times = times;
    }
    enqueue(direction, frame, &run);
}

bool direction_receive(struct direction *direction, bool overdue)
{
    static uint8_t bytes[FRAME_MOST];
    for (int i = 0; i < BATCH; i++) {
        ssize_t length = read(direction->from, bytes, sizeof bytes);
        if (length < 0)
            return true;
        struct frame frame;
        if (!frame_parse(&frame, bytes, (size_t)length)) {
            direction->counters.rejected++;
            continue;
        }
        direction->counters.late += overdue ? frame.segments : 0;
        admit(direction, &frame, now_ns());
    }
    return false;
}

/* Write a packet to the device of the host at the other end. */
static void deliver(struct direction *direction, const struct packet *packet, uint64_t now)
{
    struct counters *counters = &direction->counters;
    if (write(direction->to, packet->bytes, packet->length) < 0) {
        counters->rejected += packet->segments;
        return;
    }
    uint64_t lateness = now - packet->times.due;
    counters->packets += packet->segments;
    counters->bytes += packet->wire_bytes;
    if (lateness > LATE_NS)
        counters->late += packet->segments;
    if (lateness > counters->worst_late)
        counters->worst_late = lateness;
}

uint64_t direction_release(struct direction *direction)
{
    for (int i = 0; i < BATCH && direction->head; i++) {
        struct packet *packet = direction->head;
        uint64_t now = now_ns();
        if (packet->times.due > now)
            break;
        deliver(direction, packet, now);
        direction->head = packet->next;
        if (!direction->head)
            direction->tail = NULL;
        free(packet);
    }
    return direction->head ? direction->head->times.due : UINT64_MAX;
}

void direction_change(struct direction *direction, const struct settings *settings)
{
    uint64_t now = now_ns(), before = 0;
    double old_rate = direction->shaper.settings.rate;
    shaper_change(&direction->shaper, settings, now);
    for (struct packet *packet = direction->head; packet; packet = packet->next) {
        packet->times = shaper_moved(packet->times, old_rate, settings->rate, now);
        if (packet->times.due < before) /* jitter must not change the order */
            packet->times.due = before;
        before = packet->times.due;
    }
    if (direction->tail)
        direction->shaper.last_due = before;
}
