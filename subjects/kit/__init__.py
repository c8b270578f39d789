"""What adapters of several systems need, with torch and the standard library only."""
