/* The commands of wan.h: text in, text out. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "wan.h"

struct answer {
    char *text;
    size_t room, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct answer *answer, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int more = vsnprintf(answer->text + answer->used, answer->room - answer->used, format, values);
    va_end(values);
    if (more > 0)
        answer->used += (size_t)more;
    if (answer->used >= answer->room)
        answer->used = answer->room - 1;
}

static void make_host(struct wan *wan, const char *arguments, struct answer *answer)
{
    char name[64];
    if (wan->host_count == MOST_HOSTS || sscanf(arguments, "%63s", name) != 1) {
        say(answer, "error not a host, or too many:%s", arguments);
        return;
    }
    struct host *host = &wan->hosts[wan->host_count];
    if (host_make(host, name) < 0) {
        say(answer, "error namespaces: %s", strerror(errno));
        return;
    }
    wan->host_count++;
    say(answer, "ok %d %d", host->network, host->name);
}

/* Start to carry packets from one device to another. */
static void add_direction(struct wan *wan, int from, int to)
{
    uint32_t number = wan->direction_count++;
    struct direction *direction = &wan->directions[number];
    *direction = (struct direction){.from = from, .to = to};
    chance_seed(&direction->shaper.chance, number);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    epoll_ctl(wan->epoll, EPOLL_CTL_ADD, from, &event);
}

static void make_link(struct wan *wan, const char *arguments, struct answer *answer)
{
    uint32_t a, b;
    char device_a[16], device_b[16];
    if (sscanf(arguments, "%" SCNu32 " %" SCNu32 " %15s %15s", &a, &b, device_a, device_b) != 4 ||
        a >= wan->host_count || b >= wan->host_count || wan->direction_count == 2 * MOST_LINKS) {
        say(answer, "error not a link:%s", arguments);
        return;
    }
    int at_a = host_device(&wan->hosts[a], device_a);
    int at_b = at_a < 0 ? -1 : host_device(&wan->hosts[b], device_b);
    if (at_b < 0) {
        say(answer, "error a TUN device: %s", strerror(errno));
        return;
    }
    add_direction(wan, at_a, at_b);
    add_direction(wan, at_b, at_a);
    say(answer, "ok");
}

static void set(struct wan *wan, const char *arguments, struct answer *answer)
{
    uint32_t number;
    struct settings s;
    int found = sscanf(arguments,
                       "%" SCNu32 " rate=%lf delay=%" SCNu64 " jitter=%" SCNu64 " queue=%" SCNu64 " loss=%lf"
                       " burst_start=%lf burst_end=%lf burst_loss=%lf cross_rate=%lf cross_busy=%lf cross_quiet=%lf",
                       &number, &s.rate, &s.delay, &s.jitter, &s.queue, &s.loss, &s.bursts.start, &s.bursts.end,
                       &s.bursts.loss, &s.cross.rate, &s.cross.busy, &s.cross.quiet);
    if (found != 12 || number >= wan->direction_count || s.rate <= 0) {
        say(answer, "error not settings:%s", arguments);
        return;
    }
    direction_change(&wan->directions[number], &s);
    say(answer, "ok");
}

static void seed(struct wan *wan, const char *arguments, struct answer *answer)
{
    uint64_t number;
    if (sscanf(arguments, "%" SCNu64, &number) != 1) {
        say(answer, "error not a seed:%s", arguments);
        return;
    }
    for (uint32_t i = 0; i < wan->direction_count; i++)
        chance_seed(&wan->directions[i].shaper.chance, number * 2 * MOST_LINKS + i);
    say(answer, "ok");
}

static void missed(const struct wan *wan, struct answer *answer)
{
    uint64_t packets = 0;
    for (uint32_t i = 0; i < wan->host_count; i++)
        packets += host_missed(&wan->hosts[i]) - wan->missed_before[i];
    say(answer, "ok %" PRIu64, packets);
}

static void stats(const struct wan *wan, struct answer *answer)
{
    say(answer, "ok");
    for (uint32_t i = 0; i < wan->direction_count; i++) {
        const struct counters *c = &wan->directions[i].counters;
        say(answer,
            "\npackets=%" PRIu64 " bytes=%" PRIu64 " queue_drops=%" PRIu64 " loss_drops=%" PRIu64 " late=%" PRIu64
            " worst_late=%" PRIu64 " rejected=%" PRIu64 " cross_packets=%" PRIu64,
            c->packets, c->bytes, c->queue_drops, c->loss_drops, c->late, c->worst_late, c->rejected,
            wan->directions[i].shaper.cross_packets);
    }
}

static void reset(struct wan *wan, struct answer *answer)
{
    for (uint32_t i = 0; i < wan->host_count; i++)
        wan->missed_before[i] = host_missed(&wan->hosts[i]);
    for (uint32_t i = 0; i < wan->direction_count; i++) {
        wan->directions[i].counters = (struct counters){0};
        wan->directions[i].shaper.cross_packets = 0;
    }
    say(answer, "ok");
}

void wan_command(struct wan *wan, const char *command, char *text, size_t room)
{
    struct answer answer = {.text = text, .room = room};
    char verb[8] = "";
    sscanf(command, "%7s", verb);
    const char *arguments = command + strlen(verb);
    if (!strcmp(verb, "host"))
        make_host(wan, arguments, &answer);
    else if (!strcmp(verb, "link"))
        make_link(wan, arguments, &answer);
    else if (!strcmp(verb, "set"))
        set(wan, arguments, &answer);
    else if (!strcmp(verb, "seed"))
        seed(wan, arguments, &answer);
    else if (!strcmp(verb, "stats"))
        stats(wan, &answer);
    else if (!strcmp(verb, "missed"))
        missed(wan, &answer);
    else if (!strcmp(verb, "reset"))
        reset(wan, &answer);
    else
        say(&answer, "error no such command: %s", command);
}
