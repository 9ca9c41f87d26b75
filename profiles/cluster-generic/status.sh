#!/usr/bin/env bash
# The state of a Slurm job in the words that Snakemake reads: running, success or failed.
set -uo pipefail
if state=$(scontrol --oneliner show job "$1" 2>&1); then
  state=$(grep -o 'JobState=[A-Z_]*' <<< "$state" | cut -d= -f2)
elif [[ $state == *"Invalid job id"* ]]; then
  # Slurm forgets a job minutes after its end; its accounting, where there is one, does not.
  state=$(sacct --noheader --allocations --parsable2 --format=State --jobs="$1" 2> /dev/null | head -n 1 | cut -d' ' -f1)
else
  state=RUNNING # The controller did not answer: ask again later.
fi
case "$state" in
  COMPLETED) echo success ;;
  PENDING | CONFIGURING | RUNNING | COMPLETING | SUSPENDED | REQUEUED) echo running ;;
  *) echo failed ;;
esac
