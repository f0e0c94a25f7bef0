"""The judge put to the test: kernels that cheat, and honest kernels of unusual style. `kernelmill redteam` judges them all.

`catalogue`: every entry, collected from the data modules `hacks_*` and `honest_*`. `score`: judges them, counts the misses.
`problems`: what they claim to solve. A new entry goes into one of the data modules; docs/hacks.md lists the classes.
"""
