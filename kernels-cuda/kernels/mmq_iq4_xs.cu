#include "mmq.cuh"
#include "types/iq.cuh"

STRATA_MMQ(IQ4_XS)
