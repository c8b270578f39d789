"""Parts that adapters of several systems share, with torch and the standard library only."""
