#include "mmq.cuh"
#include "types/iq.cuh"

STRATA_MMQ(IQ3_XXS)
