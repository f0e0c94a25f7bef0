#!/bin/bash
# run_arms.sh OUT [SETTING…]: from one SFT policy multi-turn RL, single-turn RL on as many kernels, and more SFT for as
# long as RL took; then all four policies on the same held-out episodes. On an H100 with one-gpu.yaml 20 minutes.
# PYTHON, CONFIG and KERNELMILL_SGLANG as for run_one_gpu.sh. OUT gets its files, single.log, compare.log, comparison.html.
set -u
out=${1:?usage: run_arms.sh OUT [SETTING…]}; shift; mkdir -p "$out"; out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3}; config=${CONFIG:-deployments/configs/one-gpu.yaml}
bash tools/gpu/run_one_gpu.sh "$out" whole control=true "$@" || exit 1
multi=$(readlink -f "$out/runs/latest")
arguments=(--set "runs_dir=$out/runs"); for setting in "$@"; do arguments+=(--set "$setting"); done
run() { PYTHONPATH=$PWD "$python" -m flows.cli.main "$@"; }
# A conversation of three turns has two on average: twice as many of one turn have as many kernels.
samples=$("$python" -c 'import sys, yaml; print(2 * yaml.safe_load(open(sys.argv[1]))["rollout"]["samples_per_problem"])' \
  "$multi/config.yaml")
run train "$config" "${arguments[@]}" --set name=single --set sft=none --set "model.pretrained=$multi/checkpoints/policy-000" \
  --set rollout.episode.max_turns=1 --set "rollout.samples_per_problem=$samples" --set control=false \
  --set evaluation.samples_per_problem=1 --set 'evaluation.pass_at=[1]' --set evaluation.greedy=false \
  > "$out/single.log" 2>&1 || exit 1
single=$(readlink -f "$out/runs/latest")
run compare "SFT=$multi@0" "multi=$multi" "single=$single" "control=$multi/checkpoints/control" --config "$config" \
  "${arguments[@]}" > "$out/compare.log" 2>&1 || exit 1
cp "$multi"/comparisons/*/comparison.html "$out"
cat "$out/compare.log"
