"""Reports: queries -> documents. One document is shown as a page, drawn, printed, and given as JSON and CSV.

A report's module makes only the document; other modules show it.
"""
