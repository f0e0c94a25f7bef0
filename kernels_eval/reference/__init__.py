"""The problem's side: reference model, secret inputs, expected outputs, and tasks that a trivial answer passes."""
