"""What every coordinator has in common, whatever it coordinates."""
