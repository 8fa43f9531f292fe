/* Hosts: kernel namespaces for network and host name, and the TUN devices in them.
 *
 * The kernel removes them when the emulator has closed them and no process runs in them.
 * The caller sets addresses and routes with the `ip` command.
 */
#pragma once

#include <stdint.h>

/* File descriptors of a host's namespaces. */
struct host {
    int network, name;
};

/* Create a host with this name. Returns 0, or -1 with errno. */
int host_make(struct host *host, const char *name);

/* Create a TUN device in a host. Returns its file descriptor, or -1. */
int host_device(const struct host *host, const char *name);

/* Packets that a host's devices dropped because the emulator did not read them in time; UINT64_MAX: not known. */
uint64_t host_missed(const struct host *host);
