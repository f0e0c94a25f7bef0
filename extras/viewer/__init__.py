"""Viewer of runs: curves, problems by policies, answers turn by turn, two policies side by side. It only reads.

`runs` finds runs and their batches, `episodes` reads the light columns of a batch, `selection` filters them, `grid` and
`comparison` arrange them, `answer` reads one trajectory wholly. `pages` draws, `server` serves, `export` writes a file.
"""
