"""The program in the single-file executable: `coget`, or HTCondor's plugin if its name or first argument says so."""

import os
import sys
from pathlib import Path

PLUGIN = "condor_coget_plugin"
AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat and its relatives
    "/etc/ssl/ca-bundle.pem",  # SUSE
)
"""Where systems have their certificate authorities: the OpenSSL in the executable knows one of these places only."""


def _name_authorities() -> None:
    if "SSL_CERT_FILE" in os.environ or "SSL_CERT_DIR" in os.environ:
        return
    found = next(filter(os.path.exists, AUTHORITIES), None)
    if not found:
        import certifi

        found = certifi.where()
    os.environ["SSL_CERT_FILE"] = found


def _restore_library_path() -> None:
    """Let programs that coget starts, such as globus-url-copy, use the libraries of the system."""
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    if before is not None:
        os.environ["LD_LIBRARY_PATH"] = before


_restore_library_path()
if sys.argv[1:2] == [PLUGIN]:
    del sys.argv[1]
    sys.argv[0] = PLUGIN
if Path(sys.argv[0]).name == PLUGIN:
    from coalloc.plugins.condor import main
else:
    from coalloc.cli import main
if "-classad" not in sys.argv:
    _name_authorities()
main()
