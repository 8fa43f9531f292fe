"""Dependencies of the handlers: the caller, and the services."""
