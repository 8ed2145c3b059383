#!/bin/sh
# nvcc 13.0 from PyPI, for machines without a CUDA toolkit. Prints what CUDA_HOME is to be.
set -eu
env=$("$(dirname "$0")/python-env.sh" cuda 'nvidia-cuda-nvcc==13.0.*' \
    'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*' \
    'nvidia-cuda-cccl==13.0.*')
for home in "$env"/lib/python3*/site-packages/nvidia/cu13; do
    if [ -x "$home/bin/nvcc" ]; then
        printf '%s\n' "$home"
        exit 0
    fi
done
echo "fetch-nvcc: the packages hold no nvidia/cu13/bin/nvcc" >&2
exit 1
