#include "mmq.cuh"
#include "types/iq.cuh"

STRATA_MMQ(IQ1_S)
