/* The guardian of a WAN: when the emulator ends, for whatever reason, it kills the processes in the hosts and removes
 * the WAN's directory.
 *
 * It finds these processes by their mount namespace, which only processes of the WAN share.
 */
#pragma once

#include <sys/types.h>

/* Move this process into a new mount namespace, in which `folder`/hosts is /etc/hosts. Returns 0, or -1 with errno. */
int guard_enter(const char *folder);

/* Wait for the emulator's end, then end the processes of the hosts and remove `folder`. Does not return. */
_Noreturn void guard(pid_t emulator, const char *folder);
