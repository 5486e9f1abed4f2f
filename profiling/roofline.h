// How near a kernel comes to what the card allows.
#ifndef PROFILING_ROOFLINE_H_
#define PROFILING_ROOFLINE_H_

namespace attnlab::profiling {

// Of a call: its work (FLOPs, bytes to and from HBM) and its time, and the card's ceilings, a
// second each. All above 0.
struct RooflinePoint {
  double flops = 0, bytes = 0, seconds = 0;
  double most_flops = 0, most_bytes = 0;

  // FLOP a byte.
  double Intensity() const { return flops / bytes; }
  // FLOP/s that the roofline allows at that intensity.
  double Attainable() const;
  // What the call reaches of it. Above 1 only where a ceiling was measured too low.
  double Fraction() const { return flops / seconds / Attainable(); }
};

}  // namespace attnlab::profiling

#endif  // PROFILING_ROOFLINE_H_
