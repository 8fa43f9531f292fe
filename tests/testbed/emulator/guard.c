/* The guardian process; guard.h says what it is for. */
#define _GNU_SOURCE
#include "guard.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 500
#define PAUSE_NS 10000000

int guard_enter(const char *folder)
{
    char hosts[4096];
    snprintf(hosts, sizeof hosts, "%s/hosts", folder);
    /* MS_SLAVE: later mounts of the machine appear here, but mounts made here do not appear on the machine. */
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
        return -1;
    return mount(hosts, "/etc/hosts", NULL, MS_BIND, NULL);
}

/* Read the name of a process's mount namespace from /proc; "" if the process has ended or cannot be read. */
static void mounts_of(const char *pid, char *into, size_t room)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/ns/mnt", pid);
    ssize_t length = readlink(path, into, room - 1);
    into[length > 0 ? length : 0] = 0;
}

/* Send SIGKILL to all other processes in this mount namespace; return whether there were any. */
static bool kill_others(void)
{
    char ours[64], theirs[64];
    mounts_of("self", ours, sizeof ours);
    bool found = false;
    DIR *processes = opendir("/proc");
    if (!processes || !*ours)
        return false;
    for (struct dirent *entry; (entry = readdir(processes));) {
        pid_t pid = atoi(entry->d_name); /* 0 if the entry is not a process */
        if (pid <= 1 || pid == getpid())
            continue;
        mounts_of(entry->d_name, theirs, sizeof theirs);
        if (!strcmp(ours, theirs) && kill(pid, SIGKILL) == 0)
            found = true;
    }
    closedir(processes);
    return found;
}

void guard(pid_t emulator, const char *folder)
{
    waitpid(emulator, NULL, 0);
    /* Repeat, because a process may have started another one meanwhile. */
    for (int i = 0; i < ROUNDS && kill_others(); i++)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    execlp("rm", "rm", "-rf", "--", folder, (char *)NULL);
    perror("emulator: rm");
    _exit(1);
}
