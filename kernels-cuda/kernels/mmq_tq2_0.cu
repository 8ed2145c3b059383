#include "mmq.cuh"
#include "types/bits.cuh"

STRATA_MMQ(TQ2_0)
