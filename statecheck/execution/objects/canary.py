"""The canary of a campaign, where no tensor is at hand."""

LARGEST_RIGHT_NUMBER = 9
"""Above it the canary's function is wrong."""
