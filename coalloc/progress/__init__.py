"""What people and programs are shown of a transfer: three printers of one state.

`bars` draws `Snapshot`s on a terminal, `text` writes them as lines where there is none, `report` says in the end
what was done, and `json` makes the documents of `--json`. Nothing here asks how a transfer works, decides
anything, or chooses between printers; that is for the command.
"""
