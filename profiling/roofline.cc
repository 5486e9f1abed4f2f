#include "profiling/roofline.h"

#include <algorithm>

namespace attnlab::profiling {

double RooflinePoint::Attainable() const { return std::min(most_flops, most_bytes * Intensity()); }

}  // namespace attnlab::profiling
