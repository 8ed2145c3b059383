#include "mmq.cuh"
#include "types/legacy.cuh"

STRATA_MMQ(Q8_0)
