"""One run while it runs: its folder and state, its names, the policies that it has made."""
