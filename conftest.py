"""Options, profiles and fixtures of the whole suite."""

pytest_plugins = ("properties.harness.suite.options",)
