"""Parts of a report and a comparison that are shown in Prefect's UI."""

from tasks.evaluation.task import heldout_rows


def test_changes_stand_with_their_intervals_and_the_control_beside_them():
    overall = {"n": 3, "correct": 0.5, "correct_ci": [0.25, 0.75], "speed": None, "speed_ci": None}
    heldout = {"before": overall, "after": overall, "delta_correct": 0.0, "delta_correct_ci": [-0.1, 0.1]}
    (correct, _) = heldout_rows(heldout)
    assert correct["change by RL"] == "+0.000 [-0.100, +0.100]"
    assert "control" not in correct
    with_control = heldout_rows({**heldout, "control": overall, "over_control": {"delta_correct": 0.2}})
    assert with_control[0]["after RL against more SFT"] == "+0.200"
