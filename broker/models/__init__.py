"""Wire types: what callers send and get. Pydantic models; a value that is one of these is valid."""
