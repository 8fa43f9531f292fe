"""Collections, their folders and files (`trees`), paths, pauses and bookmarks."""
