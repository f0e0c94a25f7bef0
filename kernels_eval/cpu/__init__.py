"""Grading without a GPU: worker process, grader, session with a candidate's two processes, output checks, sizes."""
