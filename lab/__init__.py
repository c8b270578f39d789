"""What no command of an installed statecheck needs: the bench, generated tables, checks of the sources."""
