"""One run: its folder and workspace (`run`), its state and policies (`state`), its names in Prefect (`prefect_ui`)."""
