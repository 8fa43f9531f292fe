"""Plugins of other programs: fsspec's file system `coget://`, and files for jobs of HTCondor, Parsl and Pegasus."""
