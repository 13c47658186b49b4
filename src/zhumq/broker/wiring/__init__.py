"""Parts of the composition root: each constructs one subsystem of a broker."""
