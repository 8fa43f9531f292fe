"""coalloc: one file from several replicas at once. The public API is `coalloc.api`."""
