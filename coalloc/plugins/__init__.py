"""Plugins of other programs: fsspec's file system `coget://`, and HTCondor's file transfer plugin."""
