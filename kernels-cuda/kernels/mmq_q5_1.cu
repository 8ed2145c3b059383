#include "mmq.cuh"
#include "types/legacy.cuh"

STRATA_MMQ(Q5_1)
