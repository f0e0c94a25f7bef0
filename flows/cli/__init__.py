"""The command line `kernelmill`."""
