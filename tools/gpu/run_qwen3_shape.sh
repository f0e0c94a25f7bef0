#!/bin/bash
# run_qwen3_shape.sh OUT 0.6B|8B|8B-adapters|tiny|tiny-small [SETTING…]: one whole iteration of
# qwen3-8b-multi-turn.yaml, held-out evaluation before and after it, with a randomly initialised model of Qwen3's shape
# and a tokenizer of Qwen3's format (qwen3_shape.py makes them, problems and pairs). 0.6B: one GPU of 80 GB. 8B: two, 256 GiB of memory, 128 GB of disk.
# 8B-adapters: SFT and RL of adapters, on one GPU of 141 GB.
# tiny, tiny-small (vocabulary of 4,096): rehearsals without a GPU.
# Needs the extra `train` in PYTHON (default: python3) and SGLang where the configuration finds it (KERNELMILL_SGLANG).
# OUT gets the logs of plan, verify, train and SGLang, gpu.csv and host.csv (memory each second), summary.json. Start it
# with setsid where the shell may end before it: each line of OUT/train.log is a finished stage.
set -u
usage='usage: run_qwen3_shape.sh OUT 0.6B|8B|8B-adapters|tiny|tiny-small [SETTING…]'
out=${1:?$usage} shape=${2:?$usage}; shift 2
mkdir -p "$out"; out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3}
config=deployments/configs/qwen3-8b-multi-turn.yaml
inputs=$out/inputs
# What this check is: one iteration, a small held-out part, and inputs of its own. A random policy's kernels all get the
# reward 0, and groups without variance are not trained on: the answers' lengths give them some; and an episode would end
# after two such turns. One rank shares its sequences with none, and there is one server.
settings=(iterations=1 "runs_dir=$out/runs" "problems.path=$inputs/KernelBench" problems.train=16 problems.heldout=8
  "model.pretrained=$inputs/model" evaluation.samples_per_problem=1 'evaluation.pass_at=[1]' evaluation.greedy=false
  'rollout.episode.reward=kernelbench - 0.2*length' rollout.episode.max_zero_turns=3
  update.ranks=1 update.context_parallel=1 rollout.sglang.servers=1)
sft=("sft.data.path=$inputs/kernelbook.jsonl"
  sft.data.judge.device=cpu sft.data.compile=never) # a GPU times one kernel after the other: minutes for 120 pairs
case $shape in
  0.6B) # server, update, canary and judge share one GPU
    settings+=("${sft[@]}" sft.steps=40 sft.warmup_steps=5 sft.batch_size=16 sft.learning_rate=5.0e-4 # from random weights
      rollout.sglang.gpus_per_server=0.3 'rollout.sglang.flags=[]' # a share of 0.3 brings its own --mem-fraction-static
      rollout.gpus=0.2 update.gpus_per_rank=0.3 update.tokens_per_rank=8192 # one rank has the longest sequence to itself
      judge.device_memory_gb=12) ;; # of what is free, the server and the update want some later
  8B) # the server on one GPU; the update's optimizer does not fit the other beside weights and reference policy
    settings+=(sft=none # the optimizer of SFT and 15 GiB more of checkpoints, for a model that learns nothing in minutes
      "update.deepspeed=$out/deepspeed.json" update.tokens_per_rank=8192 update.threads_per_rank=16
      update.optimizer_state=false # 92 GiB of 128
      judge.device_memory_gb=8 # of what is free before the update has its memory
      rollout.sglang.start_timeout_s=600)
    # A tenth of the optimizer's state stays on the GPU: more does not fit beside the weights, gathered, and the reference.
    sed 's/"ratio": 0.7/"ratio": 0.9/' deployments/deepspeed/zero3-offload-partly.json > "$out/deepspeed.json" ;;
  8B-adapters) # server, update, canary and judge share one GPU
    settings+=("${sft[@]}" sft.steps=20 sft.warmup_steps=2 sft.batch_size=8 sft.learning_rate=1.0e-4
      'sft.lora={rank: 16, alpha: 32}' 'update.lora={rank: 16, alpha: 32}' update.learning_rate=1.0e-4
      update.zero_stage=1 update.gpus_per_rank=0.4 update.tokens_per_rank=8192 update.threads_per_rank=8
      rollout.gpus=0.05 rollout.sglang.gpus_per_server=0.4 'rollout.sglang.flags=[]' rollout.sglang.adapter_rank=16
      rollout.sglang.start_timeout_s=600 judge.device_memory_gb=12) ;;
  tiny*) # the embedded engine on a CPU: few tokens
    settings+=("${sft[@]}" sft.steps=4 sft.batch_size=4 sft.learning_rate=1.0e-3 model.dtype=float32
      rollout.engine=transformers rollout.threads=2 rollout.judge_actors.count=0 rollout.judge_actors.gpus=0
      rollout.sampling.max_new_tokens=24 judge.device=cpu judge.workers=2 judge.compile=never
      update.gpus_per_rank=0 update.threads_per_rank=2 update.tokens_per_rank=8192) ;;
  *) echo "unknown shape: $shape" >&2; exit 2 ;;
esac
settings+=("$@")
arguments=(); for setting in "${settings[@]}"; do arguments+=(--set "$setting"); done
export PYTHONPATH=$PWD
run() { "$python" -m flows.cli.main "$1" "$config" "${arguments[@]}"; }
"$python" tools/gpu/qwen3_shape.py watch "$out/host.csv" & samplers=($!)
trap 'kill "${samplers[@]}" 2>/dev/null' EXIT
if command -v nvidia-smi > /dev/null; then
  nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used --format=csv,noheader -l 1 > "$out/gpu.csv" &
  samplers+=($!)
fi
began=$SECONDS
"$python" tools/gpu/qwen3_shape.py inputs "$inputs" "${shape%-adapters}" > "$out/inputs.log" 2>&1 ||
  { cat "$out/inputs.log"; exit 1; }
echo "inputs: $((SECONDS - began)) s: $(tail -n 1 "$out/inputs.log")"
run plan > "$out/plan.log" 2>&1 || echo "plan: exit code $?" # said, and tried all the same
cat "$out/plan.log"
began=$SECONDS
run verify > "$out/verify.log" 2>&1 || { cat "$out/verify.log"; exit 1; }
echo "verify: $((SECONDS - began)) s"
began=$SECONDS
run train > "$out/train.log" 2>&1; code=$?
echo "train: $((SECONDS - began)) s, exit code $code"
cp "$out"/runs/latest/{summary.json,log.txt} "$out" 2>/dev/null
[ $code = 0 ] || tail -n 40 "$out/train.log"
"$python" tools/gpu/qwen3_shape.py report "$out"
du -sh "$out/runs" | sed 's/^/disk: /'
df -h "$out" | tail -n 1
exit $code
