"""coalloc: downloads of one file from several replicas at once. The public API is `coalloc.api`."""
