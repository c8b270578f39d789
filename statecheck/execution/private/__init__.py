"""What the harness uses of Hypothesis and of pytest that is not their documented interface, a module each."""
