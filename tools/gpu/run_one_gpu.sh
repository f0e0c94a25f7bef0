#!/bin/bash
# run_one_gpu.sh OUT [whole] [SETTING…]: the configuration for one GPU, scaled so that it ends within six minutes on an
# H100; with `whole` as it is.
# Needs the extra `train` in PYTHON (default: python3) and SGLang where the configuration finds it (KERNELMILL_SGLANG).
# CONFIG in the environment: another configuration than one-gpu.yaml.
# OUT gets verify.log, train.log, gpu.csv (utilisation and memory each second), summary.json, and the log of a server
# that failed. Start it with setsid where the shell may end before it; each line of train.log is a finished stage.
set -u
out=${1:?usage: run_one_gpu.sh OUT [whole] [SETTING…]}; shift; mkdir -p "$out"; out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3}
settings=(iterations=1 problems.train=48 problems.heldout=8 problems.harder=0 evaluation.greedy=false
  evaluation.samples_per_problem=2 'evaluation.pass_at=[1,2]' sft.steps=300 sft.data.compositions=200)
if [ "${1:-}" = whole ]; then settings=(); shift; fi
settings+=("runs_dir=$out/runs" "$@")
arguments=(); for setting in "${settings[@]}"; do arguments+=(--set "$setting"); done
run() { PYTHONPATH=$PWD "$python" -m flows.cli.main "$1" "${CONFIG:-deployments/configs/one-gpu.yaml}" "${arguments[@]}"; }
run verify > "$out/verify.log" 2>&1 || { cat "$out/verify.log"; exit 1; }
nvidia-smi -i "${CUDA_VISIBLE_DEVICES:-0}" --query-gpu=timestamp,utilization.gpu,memory.used --format=csv,noheader -l 1 \
  > "$out/gpu.csv" & sampler=$!
trap 'kill $sampler' EXIT
began=$SECONDS
run train > "$out/train.log" 2>&1; code=$?
cp "$out"/runs/latest/{summary.json,log.txt} "$out" 2>/dev/null
find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'kernelmill-sglang-*.log' -newer "$out/verify.log" -exec cp {} "$out" \;
awk -F', ' -v s=$((SECONDS - began)) '{ sub(" %", "", $2); busy += $2; n += 1; if ($2 == 0) idle += 1 }
  END { printf "%d s, GPU busy %.0f %%, idle in %.0f %% of %d samples\n", s, busy / n, 100 * idle / n, n }' "$out/gpu.csv"
exit $code
