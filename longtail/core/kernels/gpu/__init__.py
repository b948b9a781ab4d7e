"""Hot loops for GPUs, in Triton, which comes with a torch for GPUs. Tests marked `gpu` hold each against what torch has."""
