#!/bin/bash
# One cell of a study: of the names in CELLS, that of this task of the array.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=.work/slurm/%A_%a.log
cells=($CELLS)
exec dvc --wait-for-lock repro --single-item "${cells[$SLURM_ARRAY_TASK_ID]}"
