// Depthwise convolutions by themselves.
#include "depthwise.cuh"
