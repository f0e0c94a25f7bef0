"""Settings that pages state: which one kernel may change, and defaults beside their names."""

import re
from pathlib import Path

from kernels_eval.config import CHANGEABLE
from tasks.rollout.config import EpisodeConfig

DOCS = Path(__file__).parents[3] / "docs"


def test_the_judges_page_names_what_a_request_may_set() -> None:
    page = (DOCS / "judge.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^\| `POST /eval` \|.*?`settings` \(([^)]*)\)", page, re.MULTILINE)
    assert sorted([*re.findall(r"`(\w+)`", listed), "backend"]) == sorted(CHANGEABLE)


def test_the_page_on_rollouts_names_settings_that_exist_with_their_defaults() -> None:
    page = (DOCS / "rollouts.md").read_text(encoding="utf-8")
    table = page.partition("| setting (`rollout.episode.`) | |\n")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (`[^|]*) \| (.*) \|$", table, re.MULTILINE))
    episode = EpisodeConfig()
    for names in rows:
        for name in re.findall(r"`([\w.]+)`", names):
            value: object = episode
            for part in name.split("."):
                value = getattr(value, part)
    assert rows["`max_turns`, `gamma`"].count(f"({episode.max_turns})") == 1
    assert f"({episode.gamma})" in rows["`max_turns`, `gamma`"]
    assert f"({episode.success_reward}, {episode.max_zero_turns})" in rows["`success_reward`, `max_zero_turns`"]
    for name in ("task", "reward", "prompt", "feedback"):
        assert rows[f"`{name}`"].startswith(f"`{getattr(episode, name)}`"), "the default comes first"
