/* enter PID FD COMMAND...: become COMMAND inside a host of the WAN whose emulator is PID.
 *
 * As nsenter(1), but stays in the working directory. No process in between: whoever started us can signal and wait for
 * the command itself.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int open_namespace(const char *pid, const char *what)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, what);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int main(int count, char **words)
{
    if (count < 4) {
        fprintf(stderr, "usage: enter PID FD COMMAND...\n");
        return 2;
    }
    char network[32], folder[PATH_MAX];
    snprintf(network, sizeof network, "fd/%s", words[2]);
    int net = open_namespace(words[1], network), mounts = open_namespace(words[1], "ns/mnt");
    if (net < 0 || mounts < 0 || !getcwd(folder, sizeof folder)) {
        perror("enter: the WAN has ended");
        return 1;
    }
    /* A new mount namespace moves us to its root directory. */
    if (setns(net, CLONE_NEWNET) < 0 || setns(mounts, CLONE_NEWNS) < 0 || chdir(folder) < 0) {
        perror("enter");
        return 1;
    }
    execvp(words[3], words + 3);
    perror(words[3]);
    return 127;
}
