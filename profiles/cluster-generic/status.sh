#!/usr/bin/env bash
# The state of a Slurm job in the words that Snakemake reads: running, success or failed.
set -euo pipefail
state=$(scontrol --oneliner show job "$1" 2> /dev/null | grep -o 'JobState=[A-Z_]*' | cut -d= -f2)
case "$state" in
  COMPLETED) echo success ;;
  PENDING | CONFIGURING | RUNNING | COMPLETING | SUSPENDED) echo running ;;
  *) echo failed ;;
esac
