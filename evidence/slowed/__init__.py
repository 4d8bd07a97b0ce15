"""The bundled suites with a spin appended to every call: a folder of suites like any other, for `record_power`."""

#: Names the file that says how many turns each case spins: case -> turns, as JSON.
TURNS_VARIABLE = "FLOPWATCH_SPIN_TURNS"
