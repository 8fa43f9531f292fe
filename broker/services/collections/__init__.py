"""Collections, their folders and files (`trees`), paths, pause rules and bookmarks."""
