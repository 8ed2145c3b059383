#include "mmq.cuh"
#include "types/k.cuh"

STRATA_MMQ(Q4_K)
