#!/bin/bash
# run_control.sh OUT KERNELS [SETTING…]: RL on one GPU and, from the same SFT, rejection sampling of so many kernels on
# another. Then the table of both and of SFT. RL judges about iterations × problems × samples kernels; give as many.
# CONFIG (default: smollm2-kernelbench.yaml) and PYTHON in the environment; SGLang where the configuration finds it.
# OUT gets runs/, rl.log, rejection.log, table.log and table.json. Exit code 1: one of the runs failed; the same command
# continues.
set -u
usage='usage: run_control.sh OUT KERNELS [SETTING…]'
out=${1:?$usage} kernels=${2:?$usage}; shift 2; mkdir -p "$out"; out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.." || exit 1
config=${CONFIG:-deployments/configs/smollm2-kernelbench.yaml} samples=4
arguments=(--set "runs_dir=$out/runs" --set "ray.cpus=$(($(nproc) / 2))")
for setting in "$@"; do arguments+=(--set "$setting"); done
start() { # GPU NAME SETTING…
  local gpu=$1 name=$2; shift 2
  CUDA_VISIBLE_DEVICES=$gpu PYTHONPATH=$PWD "${PYTHON:-python3}" -m flows.cli.main train "$config" "${arguments[@]}" \
    --set "name=$name" "$@" > "$out/$name.log" 2>&1 &
}
start 0 rl; rl=$!
until grep -qE '^[✓●] SFT:' "$out/rl.log" || ! kill -0 $rl 2> /dev/null; do sleep 1; done
start 1 rejection --set iterations=0 --set "sft.joint.problems=$((kernels / samples))" \
  --set "sft.joint.samples_per_problem=$samples"; rejection=$!
failed=0
for arm in "rl $rl" "rejection $rejection"; do
  read -r name pid <<< "$arm"
  wait "$pid"; code=$?
  echo "$name: exit code $code; $(tail -n 1 "$out/$name.log")"
  [ $code -eq 0 ] || failed=1
done
[ $failed -eq 0 ] || exit 1
folder() { sed -n 's/^kernelmill run .* → //p' "$out/$1.log" | tail -n 1; }
PYTHONPATH=$PWD "${PYTHON:-python3}" tools/kernelbench_table.py "$out/table.json" "SFT=$(folder rl)@0" \
  "rejection=$(folder rejection)@0" "RL=$(folder rl)" > "$out/table.log"
