"""Collections, their directories and files (`trees`), paths, pause rules and bookmarks."""
