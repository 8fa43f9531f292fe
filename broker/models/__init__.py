"""Wire types: pydantic models of requests and answers. An instance of one of these is valid."""
