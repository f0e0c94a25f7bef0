"""Measure what SFT teaches of the generated corpus, without a judge: answers to held-out problems that are in it.

    python benchmarks/corpus_learned.py deployments/configs/agents-gpu.yaml [--set sft.shared=false] [--held 24]

For settings of `sft.data` in languages that this machine cannot judge, such as CUDA C++ without a GPU. Drafts of pairs
are taken as right where their kernels have no planted mistake; nothing is judged or timed. SFT runs as in a run, on two
threads of this machine, of a team of agents on those who write first kernels unless `sft.shared` is set. Printed at
last: kernels that a judge would have to grade, by language, and the shares of answers to held-out problems, greedy and
four sampled ones each, that are a right kernel of the corpus. An answer may be right in other words too, so that these
shares are less than those of correct kernels. 600 steps of `agents-gpu.yaml` take 13 to 16 minutes on two cores.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval import JudgeConfig, Problem, Status, Verdict
from tasks.agents.config import author_of, owner_of, owners, trained_roles, with_solver
from tasks.models.chat import encode_prompt, end_of_turn, template_family
from tasks.models.tokenizer import load_tokenizer
from tasks.pipeline.references import ProblemSetRef, Progress, SftDataRef, silent
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import Split
from tasks.problems.synthetic.composition import Composition, parse_composition
from tasks.problems.synthetic.languages import Wanted, language_of
from tasks.problems.synthetic.suite import heldout_compositions
from tasks.rollout.agent_prompts import agent_messages
from tasks.rollout.prompts import answer_text
from tasks.sft.drafts import generate_drafts
from tasks.sft.pairs import build_sft_data
from tasks.sft.train import train_sft

_SAMPLES = 4
_THREADS = 2
_SLOW, _FAST = 1.1, 2.2
"""Speed-ups that kernels in slow styles and in others are taken to have: repairs of slow ones are pairs to learn."""


def kernels_in(backend: str, styles: Sequence[str], compositions: Iterable[Composition]) -> dict[str, float]:
    """Return all right kernels of the corpus for these compositions, with the speed-up that they are taken to have."""
    language = language_of(backend, styles)
    found: dict[str, float] = {}
    for composition in compositions:
        slow = language.slow_styles(composition)
        for style in language.styles(composition):
            text = language.write(Wanted(composition, style, (), 0, "fixed", random.Random(0)))
            found.setdefault(text, _SLOW if style in slow else _FAST)
    return found


def learned_pairs(config: RunConfig, problems: ProblemSetRef, folder: Path) -> tuple[SftDataRef, dict[str, int]]:
    """Write the pairs of SFT, and count the kernels that a judge would have to grade, by language."""
    data, backend = config.sft.data, config.judge.backend
    drafts = generate_drafts(data, config.problems, data.seed_in(config.seed), backend)
    keys = sorted({draft.composition for draft in drafts})
    right = kernels_in(backend, data.styles, map(parse_composition, keys))

    def verdict(kernel: str) -> Verdict:
        if kernel not in right:
            return Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values")
        return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=right[kernel])

    def judge_all(items: Sequence[tuple[Problem, str]], _: JudgeConfig, __: Progress) -> list[Verdict]:
        return [verdict(kernel) for _, kernel in items]

    pairs = build_sft_data(
        problems,
        data,
        config.problems,
        config.rollout.episode,
        config.judge,
        data.seed_in(config.seed),
        folder,
        silent,
        judge_all,
    )
    kernels = {(draft.problem.source, kernel) for draft in drafts for kernel in (draft.kernel, *draft.earlier)}
    cuda = sum("load_inline" in kernel for _, kernel in kernels)
    return pairs, {"kernels": len(kernels), "in CUDA C++": cuda}


def share_of_right_answers(config: RunConfig, policy: Path, problems: Sequence[str]) -> dict[str, float]:
    """Return the shares of greedy and sampled first answers to held-out problems' sources that are a right kernel."""
    backend = config.judge.backend
    right = {answer_text(text).strip() for text in kernels_in(backend, (), heldout_compositions(config.problems))}
    tokenizer: Any = load_tokenizer(policy)
    model: Any = AutoModelForCausalLM.from_pretrained(policy).eval()
    end = end_of_turn(tokenizer, template_family(tokenizer))
    agents = config.rollout.episode.agents
    agent = with_solver(agents)[author_of(agents, 0)]
    torch.manual_seed(config.seed)
    found: dict[str, list[bool]] = {"greedy": [], "sampled": []}
    for source in problems:
        messages = agent_messages(source, [], config.rollout.episode, backend, agent)
        prompt = torch.tensor([encode_prompt(tokenizer, messages)])
        for name, samples in (("greedy", 1), ("sampled", _SAMPLES)):
            drawn = {"do_sample": True, "temperature": 1.0, "top_k": 0} if name == "sampled" else {"do_sample": False}
            answers = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=config.rollout.sampling.max_new_tokens,
                num_return_sequences=samples,
                eos_token_id=end,
                pad_token_id=end,
                **drawn,
            )
            for answer in answers:
                tokens = answer[prompt.shape[1] :].tolist()
                text = tokenizer.decode(tokens[: tokens.index(end)] if end in tokens else tokens)
                found[name].append(text.strip() in right)
    return {name: round(sum(hits) / len(hits), 3) for name, hits in found.items()}


def _roles(config: RunConfig) -> tuple[str, ...]:
    """Return the roles whose turns the policy that writes first kernels is trained on; none: all."""
    agents = config.rollout.episode.agents
    if not config.has_team:
        return ()
    return trained_roles(agents) if config.sft.shared else owners(agents)[owner_of(agents, author_of(agents, 0))]


def main() -> None:
    """Train, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="NAME=VALUE")
    parser.add_argument("--held", type=int, default=24, help="held-out problems")
    given = parser.parse_args()
    harder = ["problems.harder=0", f"problems.heldout={given.held}"]
    config = load_configuration(given.config, [*given.settings, *harder])
    changes = {"gpus_per_rank": 0, "ranks": 1, "threads_per_rank": _THREADS}
    engine = config.update.engine.model_copy(update=changes)
    began = time.monotonic()

    def progress(done: int, total: int, **figures: float) -> None:
        if done % 100 == 1:
            print(f"step {done} of {total}, loss {figures.get('loss', 0):.3g}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problems = build_problem_set(config.problems, folder / "problems")
        pairs, kernels = learned_pairs(config, problems, folder / "pairs")
        print(f"{pairs.pairs} pairs, {json.dumps(kernels)}", flush=True)
        place, work = folder / "policy", folder / "work"
        train_sft(pairs, config.model, config.sft, engine, config.seed, place, work, progress, roles=_roles(config))
        seconds = round(time.monotonic() - began)
        heldout = [row.problem.source for row in read_problems(problems, Split.HELDOUT)]
        shares = share_of_right_answers(config, place, heldout)
    print(json.dumps({"settings": given.settings, **kernels, "sft_s": seconds, **shares}))


if __name__ == "__main__":
    main()
