"""The canary of a campaign, where no tensor is at hand. Scripts carry `embedded`, which imports torch alone and has the number, too."""

LARGEST_RIGHT_NUMBER = 9
"""Above it the canary's function is wrong."""
