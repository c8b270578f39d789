"""What a step's metadata says about each request, one rule per field, on plain values."""
