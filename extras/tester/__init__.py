"""Trained tester: a small model that guesses a kernel's verdict from the texts of problem and kernel, before judging.

It is trained on verdicts that a run has anyway, and can choose which of several answers is judged. It never replaces
the judge. `examples` reads verdicts, `network` is the model, `training` fits it, `figures` says how good it is.
"""
