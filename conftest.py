"""Options, profiles and fixtures of the whole suite."""

pytest_plugins = ("statecheck.suite.options",)
