"""The device: its driver, files, memory and lock, and the gate that holds a queue of calls back."""
