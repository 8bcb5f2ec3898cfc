#!/bin/sh
# What a spot instance runs when it boots: be a worker of the job whose run directory lies on a shared disk.
#
# On an instance that stays, start the job once, with a name for its folder:
#   holdfast run --nnodes 2 --node-rank 0 --master-addr "$HOST" --nproc-per-node 6 --max-restarts 100 \
#     --run-dir /shared/runs/night examples/pipeline.py
# Then give every instance that comes and goes this script as its user data:
#   sh examples/spot.sh /shared/runs/night
#
# A worker that finds no free place waits as a spare. When the instance is taken away, the others go on without
# it; when the job is over, the worker ends and so does this script.
set -eu
run_dir=$1

# The job may not be there yet, or be between two attempts after it fell back to a checkpoint; one that is over
# leaves no invitation, and after an hour nobody waits for another.
tries=0
while [ "$tries" -lt 720 ]; do
    if [ -r "$run_dir/invitation.json" ]; then
        tries=0
        if holdfast join "$run_dir"; then
            exit 0
        fi
    fi
    tries=$((tries + 1))
    sleep 5
done
