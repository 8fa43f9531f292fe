"""GSI: logging in to gsiftp:// servers with X.509 proxy certificates, without a C library.

A session uses `GridSecurity`. Unlike the Globus library, it does not encrypt data connections (PROT P).
"""

from coalloc.engine.gridftp.gsi.failures import DelegationNeeded
from coalloc.engine.gridftp.gsi.security import GridSecurity

__all__ = ["DelegationNeeded", "GridSecurity"]
