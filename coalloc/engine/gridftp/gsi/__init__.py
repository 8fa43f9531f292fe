"""GSI: logging in to gsiftp:// servers with X.509 proxy certificates, without a C library.

`GridSecurity` is what a session uses. Limits, compared with the Globus library: data connections carry no encryption
(PROT P).
"""

from coalloc.engine.gridftp.gsi.failures import DelegationNeeded
from coalloc.engine.gridftp.gsi.security import GridSecurity

__all__ = ["DelegationNeeded", "GridSecurity"]
