"""The Triton kernels of align mode. Each is correct for every grid: its programs share out the work among themselves."""
