#!/bin/bash
# run_sglang.sh SGLANG_ARCHIVE OUT [arguments of sglang_end_to_end.py]: unpacks an archive of SGLang's packages (Python 3.12, with its
# own pydantic), and runs tools/gpu/sglang_end_to_end.py with this machine's `python3`, which needs torch, triton, transformers, numpy,
# pyarrow, httpx and cachetools. Nothing is installed: a virtual environment in a temporary folder sees that interpreter's packages, and of the
# archive only pydantic where it is missing. SGLang itself is seen by the server's process alone.
set -euo pipefail
archive=$(readlink -f "${1:?usage: run_sglang.sh SGLANG_ARCHIVE OUT}")
mkdir -p "${2:?usage: run_sglang.sh SGLANG_ARCHIVE OUT}" && out=$(readlink -f "$2") && shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/site" "$work/client"
tar -xf "$archive" -C "$work/site"
if ! python3 -c 'import pydantic' 2> /dev/null; then
  for name in pydantic pydantic_core annotated_types typing_inspection typing_extensions.py; do
    ln -s "$work/site/$name" "$work/client/$name"
  done
fi

# The judge starts processes of its own that keep no PYTHONPATH: what they need must belong to the interpreter.
python3 -m venv --without-pip "$work/venv"
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
ours=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n%s\n' "$work/client" "import site; site.addsitedir('$packages')" > "$ours/kernelmill-gpu.pth"

# KERNELMILL_SGLANG_SECONDS in all, the unpacking above included; the parts share what is left, and write each result as they have it.
left=$((${KERNELMILL_SGLANG_SECONDS:-450} - SECONDS))
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
timeout --kill-after=5 "$((left - 5))" "$work/venv/bin/python" tools/gpu/sglang_end_to_end.py \
  --site "$work/site" --out "$out" --budget "$((left - 25))" "$@"
