"""Judges operators of installable packages as they are, without a GPU: a line of JSON for each, and a table.

    python tools/strangers/judge_strangers.py FOLDER OUT.jsonl [--packages NAME …] [--only WORD …]

FOLDER holds unpacked wheels. Lines that are in OUT.jsonl already are kept.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from bundle import CannotBundleError
from operators import Operator, operators

from kernels_eval import Judge, JudgeConfig, Problem


def judged(operator: Operator, folder: Path, judge: Judge) -> dict[str, Any]:
    """Return the line of one operator."""
    line = {"package": operator.package, "operator": operator.name, "reference": operator.reference}
    try:
        kernel = operator.candidate(folder)
    except (CannotBundleError, SyntaxError) as cannot:
        return {**line, "status": "not taken", "category": "", "message": str(cannot)}
    verdict = judge.submit(Problem(problem_id=operator.name, source=operator.problem), kernel, None).result()
    return {
        **line,
        "status": str(verdict.status),
        "category": str(verdict.error_category or ""),
        "message": (verdict.error_message or "")[:600],
        "warnings": list(verdict.warnings),
    }


def table(lines: list[dict[str, Any]]) -> list[str]:
    """Return a row for each package, and one for each refusal."""
    rows = ["| package | operators | correct | refused |", "|---|---|---|---|"]
    for package in dict.fromkeys(line["package"] for line in lines):
        own = [line for line in lines if line["package"] == package and line["status"] != "not taken"]
        refused = Counter(f"{line['category']}" for line in own if line["status"] != "correct")
        causes = ", ".join(f"{count} {cause}" for cause, count in refused.most_common())
        rows.append(f"| {package} | {len(own)} | {len(own) - refused.total()} | {causes} |")
    return rows


def main() -> None:
    """Judge what is missing in the output, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    out: Path = arguments.out
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    known = {(line["package"], line["operator"], line["reference"]) for line in lines}
    with Judge(JudgeConfig(workers=1, device="cpu", compile="never")) as judge, out.open("a", encoding="utf-8") as file:
        for package in arguments.packages:
            for operator in operators(package, arguments.folder):
                if (package, operator.name, operator.reference) in known:
                    continue
                if arguments.only and not any(word in operator.name for word in arguments.only):
                    continue
                if arguments.show:
                    print(operator.problem, operator.candidate(arguments.folder), sep="\n#####\n")
                lines.append(judged(operator, arguments.folder, judge))
                file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
                if lines[-1]["status"] != "correct":
                    print(json.dumps(lines[-1]), flush=True)
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
