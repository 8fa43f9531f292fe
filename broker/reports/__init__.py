"""Reports: queries -> documents. One document is shown as a page, drawn, printed, and given as JSON and CSV.

A report's module makes its document; how that is shown is nobody's business here.
"""
