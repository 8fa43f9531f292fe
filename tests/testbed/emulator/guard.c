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
    /* A slave sees what the machine mounts later, and shows the machine nothing of its own. */
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
        return -1;
    return mount(hosts, "/etc/hosts", NULL, MS_BIND, NULL);
}

/* What /proc says about a process's mount namespace; "" when it is gone, or another user's. */
static void mounts_of(const char *pid, char *into, size_t room)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/ns/mnt", pid);
    ssize_t length = readlink(path, into, room - 1);
    into[length > 0 ? length : 0] = 0;
}

/* SIGKILL all others in our mount namespace; true when there were any. */
static bool kill_others(void)
{
    char ours[64], theirs[64];
    mounts_of("self", ours, sizeof ours);
    bool found = false;
    DIR *processes = opendir("/proc");
    if (!processes || !*ours)
        return false;
    for (struct dirent *entry; (entry = readdir(processes));) {
        pid_t pid = atoi(entry->d_name); /* 0 for what is no process */
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
    /* Again and again, for a process may have begun another one while we looked. */
    for (int i = 0; i < ROUNDS && kill_others(); i++)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    execlp("rm", "rm", "-rf", "--", folder, (char *)NULL);
    perror("emulator: rm");
    _exit(1);
}
