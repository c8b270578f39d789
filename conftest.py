"""Options, profiles and fixtures of the whole suite."""

from statecheck.workers.own_process import collect_rarely

pytest_plugins = ("statecheck.suite.options",)

collect_rarely()
