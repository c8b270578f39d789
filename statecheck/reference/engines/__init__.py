"""Answers about engines: their scenarios, their slots, and states that they send to each other."""
