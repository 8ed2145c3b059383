#include "mmq.cuh"
#include "types/k.cuh"

STRATA_MMQ(Q3_K)
