"""Reports: what a gate found out, for people. Pure functions of the records; none imports torch."""
