"""asv keeps the history and draws the dashboard: its environment, what is recorded, and what is published.

asv is an optional requirement (``flopwatch[history]``); nothing outside this package and `flopwatch.record` imports it.
"""
