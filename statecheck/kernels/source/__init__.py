"""From a kernel and the arguments of a launch to the Python that is run."""
