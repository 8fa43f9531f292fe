"""Wire types: pydantic models of requests and responses; an instance has passed validation."""
