"""Red team: kernels that cheat and honest kernels of unusual style, to test the judge.

`kernelmill judge redteam` judges them all. The cases are data of a checkout: `tests/redteam/hacks/<class>/` and
`tests/redteam/honest/<group>/`, one file each. `case` reads a file, `suite` finds files and classes, `check` judges
cases and counts misses, `report` writes the table of docs/hacks.md.
"""
