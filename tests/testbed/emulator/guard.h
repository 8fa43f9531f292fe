/* Nothing outlives a WAN: processes in its hosts and its folder go when the emulator ends, however it ends.
 *
 * All of a WAN's processes, and no others, share one mount namespace; that is how they are found.
 */
#pragma once

#include <sys/types.h>

/* Move into a mount namespace of our own, in which `folder`/hosts is /etc/hosts. Returns 0, or -1 with errno. */
int guard_enter(const char *folder);

/* Wait for the emulator's end, then end the processes of the hosts and remove `folder`. Does not return. */
_Noreturn void guard(pid_t emulator, const char *folder);
