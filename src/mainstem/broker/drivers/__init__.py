"""What runs the machines of `core` on the loop: it feeds them requests and timers and carries out what they decide."""
