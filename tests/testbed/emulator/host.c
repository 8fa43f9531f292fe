/* Network namespaces and TUN devices; host.h says what they are. */
#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/if.h>
#include <linux/if_tun.h>

static const char *const HOST_SETTINGS[][2] = {
    {"/proc/sys/net/ipv4/ip_forward", "1"},
    /* Packets may return over another link than the one they came over. */
    {"/proc/sys/net/ipv4/conf/all/rp_filter", "0"},
    {"/proc/sys/net/ipv4/conf/default/rp_filter", "0"},
    /* Metrics saved from one connection must not speed up the next one: runs must be comparable. */
    {"/proc/sys/net/ipv4/tcp_no_metrics_save", "1"},
    {"/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"},
};

static int put(const char *path, const char *value)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t written = write(file, value, strlen(value));
    close(file);
    return written < 0 ? -1 : 0;
}

static int own_namespace(const char *kind)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/thread-self/ns/%s", kind);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Configure a host from inside its new namespaces. */
static int furnish(struct host *host, const char *name)
{
    *host = (struct host){own_namespace("net"), own_namespace("uts")};
    if (host->network < 0 || host->name < 0 || sethostname(name, strlen(name)) < 0)
        return -1;
    for (size_t i = 0; i < sizeof HOST_SETTINGS / sizeof *HOST_SETTINGS; i++)
        if (put(HOST_SETTINGS[i][0], HOST_SETTINGS[i][1]) < 0 && errno != ENOENT) /* a kernel without IPv6 */
            return -1;
    return 0;
}

int host_make(struct host *host, const char *name)
{
    struct host home = {own_namespace("net"), own_namespace("uts")};
    if (home.network < 0 || home.name < 0 || unshare(CLONE_NEWNET | CLONE_NEWUTS) < 0)
        return -1;
    int made = furnish(host, name);
    if (setns(home.network, CLONE_NEWNET) < 0 || setns(home.name, CLONE_NEWUTS) < 0)
        made = -1;
    close(home.network);
    close(home.name);
    return made;
}

static int open_device(const char *name)
{
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0)
        return -1;
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    unsigned offload = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO_ECN; /* super-packets, see frame.h */
    if (ioctl(device, TUNSETIFF, &request) < 0 || ioctl(device, TUNSETOFFLOAD, offload) < 0) {
        close(device);
        return -1;
    }
    return device;
}

int host_device(const struct host *host, const char *name)
{
    int home = own_namespace("net");
    if (home < 0 || setns(host->network, CLONE_NEWNET) < 0)
        return -1;
    int device = open_device(name);
    if (setns(home, CLONE_NEWNET) < 0)
        device = -1;
    close(home);
    return device;
}

/* Sum the column "drop" of the transmit counters over all devices (proc(5), /proc/net/dev). */
static uint64_t sum_drops(FILE *file)
{
    char line[512];
    uint64_t sum = 0, dropped;
    while (fgets(line, sizeof line, file)) {
        const char *numbers = strchr(line, ':');
        if (numbers && sscanf(numbers + 1, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64, &dropped) == 1)
            sum += dropped;
    }
    return sum;
}

uint64_t host_missed(const struct host *host)
{
    int home = own_namespace("net");
    if (home < 0 || setns(host->network, CLONE_NEWNET) < 0)
        return UINT64_MAX;
    FILE *file = fopen("/proc/thread-self/net/dev", "r");
    uint64_t missed = file ? sum_drops(file) : UINT64_MAX;
    if (file)
        fclose(file);
    if (setns(home, CLONE_NEWNET) < 0)
        missed = UINT64_MAX;
    close(home);
    return missed;
}
