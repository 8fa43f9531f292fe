/* emulator FOLDER: the links of a WAN on one machine.
 *
 * Standard input is a socket (AF_UNIX, SOCK_SEQPACKET), from which the emulator reads commands, one per message, and to
 * which it writes answers (wan.h). It first writes "ready PID". When the other end is closed, even by the death of its
 * process, the WAN ends: devices and namespaces disappear, processes in its hosts are killed, and FOLDER is removed
 * (guard.h).
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guard.h"
#include "wan.h"

#define CONTROL 0
#define CONTROL_EVENT UINT32_MAX
#define EVENTS (2 * MOST_LINKS + 1) /* most descriptors that can be ready at once */
/* A packet's time begins when it is read. To notice late reads, the emulator polls at least this often; */
#define LOOK_NS 1000000u
/* after a longer pause, packets may have waited to be read. */
#define OVERDUE_NS 2000000u

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Ask for priority over other processes. If the kernel refuses, packets may be late, which is counted. */
static void be_punctual(void)
{
    sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &(struct sched_param){.sched_priority = 10});
    prctl(PR_SET_TIMERSLACK, 1);
    /* Do not return freed memory to the kernel: packets take megabytes, and allocating them again takes too long. */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

/* Carry out one command; exit if the other end has closed the socket. */
static void serve(struct wan *wan)
{
    static char command[4096], answer[1 << 17];
    ssize_t length = recv(CONTROL, command, sizeof command - 1, 0);
    if (length <= 0)
        exit(0);
    command[length] = 0;
    wan_command(wan, command, answer, sizeof answer);
    if (send(CONTROL, answer, strlen(answer), MSG_NOSIGNAL) < 0)
        exit(0);
}

/* Write the packets that are due in all directions; return how long to wait for the next one. */
static struct timespec release(struct wan *wan)
{
    uint64_t next = now_ns() + LOOK_NS;
    for (uint32_t i = 0; i < wan->direction_count; i++) {
        uint64_t due = direction_release(&wan->directions[i]);
        if (due < next)
            next = due;
    }
    uint64_t now = now_ns();
    return (struct timespec){.tv_nsec = next > now ? (long)(next - now) : 0};
}

static _Noreturn void run(struct wan *wan)
{
    for (uint64_t looked = now_ns();;) {
        struct timespec wait = release(wan);
        struct epoll_event events[EVENTS];
        int count = epoll_pwait2(wan->epoll, events, EVENTS, &wait, NULL);
        uint64_t now = now_ns();
        bool all = count >= 0; /* negative: interrupted by a signal before anything was checked */
        for (int i = 0; i < count; i++) {
            if (events[i].data.u32 == CONTROL_EVENT)
                serve(wan);
            else
                all &= direction_receive(&wan->directions[events[i].data.u32], now - looked > OVERDUE_NS);
        }
        if (all)
            looked = now;
    }
}

static _Noreturn void emulate(void)
{
    static struct wan wan;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* without a guardian there is no WAN */
    be_punctual();
    wan.epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = CONTROL_EVENT};
    if (wan.epoll < 0 || epoll_ctl(wan.epoll, EPOLL_CTL_ADD, CONTROL, &event) < 0)
        fail("emulator: standard input");
    char ready[32];
    snprintf(ready, sizeof ready, "ready %d", getpid());
    if (send(CONTROL, ready, strlen(ready), MSG_NOSIGNAL) < 0)
        fail("emulator: standard input");
    run(&wan);
}

int main(int count, char **words)
{
    if (count != 2) {
        fprintf(stderr, "usage: emulator FOLDER, with a socket as standard input\n");
        return 2;
    }
    if (guard_enter(words[1]) < 0)
        fail("emulator: a mount namespace");
    pid_t child = fork();
    if (child < 0)
        fail("emulator: fork");
    if (child == 0)
        emulate();
    close(CONTROL);
    guard(child, words[1]);
}
