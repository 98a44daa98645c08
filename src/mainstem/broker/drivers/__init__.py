"""What runs the machines of `core`: files, timers and messages around decisions."""
