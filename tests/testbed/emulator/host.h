/* Hosts: namespaces of the kernel for network and host name, and the TUN devices in them.
 *
 * They live as long as the emulator holds them open, or a process runs in them; nothing is left to clean away.
 * Addresses and routes are left to the `ip` command, which the caller runs there.
 */
#pragma once

#include <stdint.h>

/* File descriptors of a host's namespaces. */
struct host {
    int network, name;
};

/* Make a host of that name. Returns 0; -1: the kernel refused, errno says why. */
int host_make(struct host *host, const char *name);

/* Make a TUN device in a host. Returns its file descriptor, or -1. */
int host_device(const struct host *host, const char *name);

/* Packets that a host's devices dropped because the emulator did not read them in time; UINT64_MAX: not known. */
uint64_t host_missed(const struct host *host);
