#include "mmq.cuh"
#include "types/legacy.cuh"

STRATA_MMQ(NVFP4)
