"""The machinery around the properties: execution port, trials, campaigns, reports, command line."""
