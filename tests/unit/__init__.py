"""Tests of the rooms, each in a folder of its name."""
