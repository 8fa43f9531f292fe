"""The native GridFTP engine."""
