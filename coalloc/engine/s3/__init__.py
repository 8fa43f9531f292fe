"""The S3 engine: `S3Source` for s3:// URLs, which are read by signed requests of the HTTP engine."""

from coalloc.engine.s3.source import S3Findings, S3Source

__all__ = ["S3Findings", "S3Source"]
