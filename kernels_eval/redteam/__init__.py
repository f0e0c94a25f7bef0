"""Red team: kernels that cheat and honest kernels of unusual style, to test the judge.

`kernelmill redteam` judges them all. `hacks/<class>/` and `honest/<group>/` hold the cases, one file each. `case`
reads a file, `suite` finds files and classes, `check` judges cases and counts misses, `report` writes the table of
docs/hacks.md.
"""
