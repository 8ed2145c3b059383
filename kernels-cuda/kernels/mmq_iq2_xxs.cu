#include "mmq.cuh"
#include "types/iq.cuh"

STRATA_MMQ(IQ2_XXS)
