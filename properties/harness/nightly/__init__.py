"""Campaigns that people leave running: planned in rounds, spread over GPUs and machines, written down to be read."""
