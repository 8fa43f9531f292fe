"""A demonstration: invented sites and datasets with eight weeks of transfers and tasks, so that each report has data.

The data are pure functions of a seed and of the end of the history; `filling` stores them through the services.
Histories of the same seed differ only in their dates.
"""
