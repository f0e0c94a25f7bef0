#!/bin/bash
# run_seeds.sh OUT SEED… [-- SETTING…]: runs of several seeds side by side, each on a GPU of its own. The first one makes
# problem set and pairs, which the others share: they begin when the pairs are there.
# CONFIG (default: smollm2-kernelbench.yaml) and PYTHON in the environment; SGLang where the configuration finds it.
# OUT gets runs/ and a log for each seed. Exit code 1: one of them failed; the same command continues.
set -u
out=${1:?usage: run_seeds.sh OUT SEED… [-- SETTING…]}; shift; mkdir -p "$out"; out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.." || exit 1
config=${CONFIG:-deployments/configs/smollm2-kernelbench.yaml}
seeds=(); while [ $# -gt 0 ] && [ "$1" != -- ]; do seeds+=("$1"); shift; done
[ $# -eq 0 ] || shift
[ ${#seeds[@]} -gt 0 ] || { echo 'usage: run_seeds.sh OUT SEED… [-- SETTING…]' >&2; exit 2; }
settings=("runs_dir=$out/runs" "ray.cpus=$(($(nproc) / ${#seeds[@]}))" "$@")
arguments=(); for setting in "${settings[@]}"; do arguments+=(--set "$setting"); done
pids=()
start() { # GPU SEED
  CUDA_VISIBLE_DEVICES=$1 PYTHONPATH=$PWD "${PYTHON:-python3}" -m flows.cli.main train "$config" --set "seed=$2" \
    "${arguments[@]}" > "$out/$2.log" 2>&1 &
  pids+=($!)
}
start 0 "${seeds[0]}"
until grep -qE '^[✓●] SFT data:' "$out/${seeds[0]}.log" || ! kill -0 "${pids[0]}" 2> /dev/null; do sleep 1; done
for number in $(seq 1 $((${#seeds[@]} - 1))); do
  sleep 4 # local Rays that start at the same moment may take each other's ports
  start "$number" "${seeds[$number]}"
done
failed=0
for number in "${!seeds[@]}"; do
  wait "${pids[$number]}"; code=$?
  echo "seed ${seeds[$number]}: exit code $code; $(tail -n 1 "$out/${seeds[$number]}.log")"
  [ $code -eq 0 ] || failed=1
done
exit $failed
