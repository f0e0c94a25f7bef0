"""The candidate's host code run on tensors without values, in a process of its own."""
