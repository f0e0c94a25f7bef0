"""The families of operators, one file each; tasks.problems.modules.corpus lists them."""
