#!/bin/bash
# One cell on several nodes, a process for each GPU, or for each CPU where there are none:
#     sbatch --gpus-per-node=4 examples/slurm/nodes.sh certify@imagenet-advmacer-0.5-0
# with, in params.yaml:
#     launcher: >-
#       srun torchrun --nnodes $SLURM_NNODES --nproc-per-node $PROCESSES
#       --rdzv-id $SLURM_JOB_ID --rdzv-backend c10d --rdzv-endpoint $HEAD:29500
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
export HEAD=$(hostname) PROCESSES=${SLURM_GPUS_ON_NODE:-$SLURM_CPUS_ON_NODE}
exec dvc --wait-for-lock repro "$@"
