"""What `statecheck.sanitizer` is made of."""
