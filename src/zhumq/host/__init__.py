"""The machine: clocks, disks, ports."""
