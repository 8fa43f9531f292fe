"""The native GridFTP engine: `GridFTPSource` for ftp:// and gsiftp:// URLs."""

from coalloc.engine.gridftp.source import GridFTPFindings, GridFTPSource

__all__ = ["GridFTPFindings", "GridFTPSource"]
