#include "mmq.cuh"
#include "types/k.cuh"

STRATA_MMQ(Q6_K)
