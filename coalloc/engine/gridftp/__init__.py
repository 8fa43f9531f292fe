"""The native GridFTP engine: `GridFTPSource` for ftp:// and gsiftp:// URLs."""

from coalloc.engine.gridftp.source import GridFTPSource, Known

__all__ = ["GridFTPSource", "Known"]
