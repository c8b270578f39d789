"""Data that somebody else may have written, and files that are whole at every moment."""
