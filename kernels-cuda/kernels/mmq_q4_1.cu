#include "mmq.cuh"
#include "types/legacy.cuh"

STRATA_MMQ(Q4_1)
