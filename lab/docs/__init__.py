"""What the pages in docs/ hold, and the checks of it."""
