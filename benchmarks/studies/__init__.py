"""Questions about parameters, which ``flopwatch compare --study`` answers; neither gate nor history looks here."""
