#include "mmq.cuh"
#include "types/k.cuh"

STRATA_MMQ(Q5_K)
