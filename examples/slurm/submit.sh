#!/bin/bash
# Submit the cells of a study that are missing: an array for each stage, which waits for the arrays before it. Called
# again, it submits what is still missing and not in the queue. Every node must see this folder. Options of sbatch, such
# as --gpus=1 --cpus-per-task=8 --time=4:00:00, are words of the variable SBATCH.
set -euo pipefail
name=study@$PWD
queue=$(squeue --me --array --noheader --name="$name" --format='%F %K %k')  # array, number in it, names of its cells
jobs=$(awk '{ print $1 }' <<< "$queue" | sort -u | xargs | tr ' ' ':')
queued=$(awk '{ print $($2 + 3) }' <<< "$queue")
[ "$queue" ] || dvc repro --quiet fingerprint_first prepare  # jobs in the queue read what this writes
cells=$(dvc stage list --name-only) graph=$(dvc dag --dot)

needing() {  # cells, and all that need one of them, in the order of the pipeline
    awk -F'"' '
        FILENAME == ARGV[1] { chosen[$0]; next }
        FILENAME == ARGV[2] { needs[$4] = needs[$4] $2 " "; next }
        {
            count = split(needs[$0], before, " ")
            for (i = 1; i <= count; i++) if (before[i] in chosen) chosen[$0]
            if ($0 in chosen) print
        }' <(echo "$1") <(grep -e '->' <<< "$graph") <(echo "$cells")
}

# DVC says nothing of cells whose files a job is writing, which are in the queue or need one of those.
changed=$(dvc --wait-for-lock status $(grep -vxFf <(needing "$queued") <<< "$cells") | sed -n 's/^\(.*@.*\):$/\1/p')
missing=$(needing "$queued"$'\n'"$changed" | grep -vxFf <(echo "$queued") || true)

mkdir -p .work/slurm
for stage in $(sed -E 's/(_members)?@.*//' <<< "$missing" | uniq); do
    export CELLS=$(grep -E "^$stage(_members)?@" <<< "$missing" | xargs)
    count=$(wc -w <<< "$CELLS")
    waits=${jobs:+--dependency=afterok:$jobs}
    job=$(sbatch --parsable --job-name="$name" --comment="$CELLS" --array=0-$((count - 1)) --kill-on-invalid-dep=yes \
        $waits ${SBATCH:-} "$(dirname "$0")/cell.sh")
    echo "$stage: $count cells, job $job${jobs:+, after $jobs}"
    jobs=${jobs:+$jobs:}$job
done
[ "$missing" ] || echo "nothing to submit; in the queue: $(grep -c . <<< "$queue" || true) cells"
