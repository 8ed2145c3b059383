#!/bin/sh
# The DPC++ runtime of 2026.2 from PyPI (1.7 GB installed): libsycl, its headers, its
# run-time compiler and an OpenCL CPU device. Prints what STRATA_SYCL_ROOT is to be.
set -eu
exec "$(dirname "$0")/python-env.sh" sycl 'dpcpp-cpp-rt==2026.2.0'
