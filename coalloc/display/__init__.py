"""The display of a transfer for users and programs: three printers of one state.

`bars` draws `Snapshot`s on a terminal, `text` writes them as lines on other outputs, `download_report` summarizes the
finished transfer, and `json` makes the documents of `--json`. This package does not control transfers or choose between
printers; the commands do.
"""
