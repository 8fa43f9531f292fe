"""The actions of work items: list, copy, download, link, delete, compare."""
