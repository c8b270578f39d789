"""Data from outside, and files that are whole at every moment."""
