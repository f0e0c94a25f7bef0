#!/bin/bash
# A Slurm job that starts Ray on its nodes and runs `kernelmill train` on them:
#
#   sbatch --nodes=2 --gpus-per-node=8 --cpus-per-task=64 --time=24:00:00 deployments/ray/slurm.sh CONFIG [ARGUMENT…]
#
# Submit it in the checkout after `make setup`; every node sees that folder at the same path. Five minutes before its
# time limit the run ends in order and the job is queued again, as Slurm does after a node's failure: the run continues
# then. `scancel` ends it.
#SBATCH --job-name=kernelmill
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@300
set -u
config=${1:?usage: sbatch [OPTION…] deployments/ray/slurm.sh CONFIG [ARGUMENT…]}; shift
run=
trap '[ -z "$run" ] || kill -TERM "$run"' TERM
export PATH=$PWD/.venv/bin:$PATH
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE} # steps do not take it from the job
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))') || exit 1
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN # srun passes them on
host=$(python -c 'import ray; print(ray.util.get_node_ip_address())') || exit 1
port=$((20000 + SLURM_JOB_ID % 10000)) folder=/tmp/ray-$SLURM_JOB_ID # another job may have /tmp/ray, and its port
address=$host:$port
others=$((SLURM_JOB_NUM_NODES - 1))

ray_on() { # NODES, SRUN'S OPTION, RAY'S OPTION…
  srun --nodes="$1" --ntasks="$1" "$2" ray start --block --disable-usage-stats --temp-dir="$folder" \
    --num-cpus="$SRUN_CPUS_PER_TASK" "${@:3}" &
}
ray_on 1 --nodelist="$SLURMD_NODENAME" --head --node-ip-address="$host" --port=$port --include-dashboard=false
steps=$!
[ $others -eq 0 ] || { ray_on $others --exclude="$SLURMD_NODENAME" --address="$address"; steps="$! $steps"; }
kernelmill train --config "$config" --set "ray.address=$address" --set "ray.nodes=$SLURM_JOB_NUM_NODES" "$@" &
run=$!
wait $run; code=$?
while kill -0 $run 2> /dev/null; do wait $run; code=$?; done # a signal ends `wait`, not the run
for step in $steps; do kill "$step"; wait "$step"; done 2> /dev/null # the head last: the others take leave of it
# A job that scancel ends has no steps any more.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" rm -rf "$folder" 2> /dev/null || rm -rf "$folder"
# A job that scancel ends is completing by now. One whose time limit is near still runs.
[ $code -ne 143 ] || [ "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)" != RUNNING ] ||
  exec scontrol requeue "$SLURM_JOB_ID"
exit $code
