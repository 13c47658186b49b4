"""Runs the consensus cores through faults in virtual time: `python -m simulation`."""

import sys

from simulation.simulator import main

sys.exit(main())
