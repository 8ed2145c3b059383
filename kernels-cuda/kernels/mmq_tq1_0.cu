#include "mmq.cuh"
#include "types/bits.cuh"

STRATA_MMQ(TQ1_0)
