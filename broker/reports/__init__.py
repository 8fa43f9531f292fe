"""Reports: documents computed from queries, and shown as pages, figures, files, JSON and CSV.

A report's module creates only the document; other modules present it.
"""
