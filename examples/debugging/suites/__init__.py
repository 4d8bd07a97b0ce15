"""The suites of a project that is being debugged."""
