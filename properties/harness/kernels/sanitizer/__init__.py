"""What `properties.sanitizer` is made of."""
