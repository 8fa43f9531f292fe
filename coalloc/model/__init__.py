"""Values that travel between the packages, a subject a module. No I/O."""
