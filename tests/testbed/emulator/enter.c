/* enter PID NETWORK NAME COMMAND...: become COMMAND inside a host of the WAN whose emulator is PID.
 *
 * NETWORK and NAME are the emulator's file descriptors of the host's namespaces (host.h). Like nsenter(1), but keeps
 * the working directory. It replaces itself by the command, so the caller can signal the command and wait for it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Move into a namespace of the emulator. */
static int join(const char *pid, const char *folder, const char *what)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/%s/%s", pid, folder, what);
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    return namespace < 0 ? -1 : setns(namespace, 0);
}

int main(int count, char **words)
{
    if (count < 5) {
        fprintf(stderr, "usage: enter PID NETWORK NAME COMMAND...\n");
        return 2;
    }
    char folder[PATH_MAX];
    const char *pid = words[1];
    if (!getcwd(folder, sizeof folder) || join(pid, "fd", words[2]) < 0 || join(pid, "fd", words[3]) < 0 ||
        join(pid, "ns", "mnt") < 0 || chdir(folder) < 0) { /* a new mount namespace changes the working directory */
        perror("enter: the host cannot be entered, has its WAN ended?");
        return 1;
    }
    execvp(words[4], words + 4);
    perror(words[4]);
    return 127;
}
