"""Timetables of collect jobs over time-expanded graphs (Cheng, III and IV)."""
