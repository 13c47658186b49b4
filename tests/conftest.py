"""What holds for every test."""

from hypothesis import settings

# No time limit for an example: speed is measured by the benchmarks, and a busy machine is no fault of the code.
settings.register_profile("zhumq", deadline=None)
settings.load_profile("zhumq")
