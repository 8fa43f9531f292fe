/* Hosts: network namespaces without a name, and the TUN devices in them.
 *
 * A namespace lives as long as the emulator holds it open, or a process runs in it; nothing is left to clean away.
 * Addresses and routes are left to the `ip` command, which the caller runs there.
 */
#pragma once

#include <stdint.h>

/* Make a host. Returns the file descriptor of its namespace; -1: the kernel refused, errno says why. */
int host_make(void);

/* Make a TUN device in a host. Returns its file descriptor, or -1. */
int host_device(int host, const char *name);

/* Packets that a host's devices dropped because the emulator did not read them in time; UINT64_MAX: not known. */
uint64_t host_missed(int host);
