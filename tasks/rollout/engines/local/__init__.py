"""The embedded engine: a Hugging Face model in this process, decoded in static batches."""
