#include "mmq.cuh"
#include "types/legacy.cuh"

STRATA_MMQ(IQ4_NL)
