#include "mmq.cuh"
#include "types/bits.cuh"

STRATA_MMQ(Q2_0)
