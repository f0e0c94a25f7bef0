"""Configurations of other trainers, read into ours: a launch script's flags, or a YAML file.

`flags` reads the file, one module a trainer (`slime`, `verl`, `trl`) has its rules, `configuration` writes the result.
"""
