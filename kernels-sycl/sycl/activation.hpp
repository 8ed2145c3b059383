// Hidden values from gate and up values, as strata-core's Activation has them.
#pragma once
#include "functions.hpp"

#define SWIGLU 0
#define SWIGLU_CLAMPED 1
#define SWIGLU_LIMITED 2
#define SWIGLU_OAI 3
#define GELU_TANH 4
#define GELU_ERF 5
#define RELU 6
#define RELU_SQUARED 7
#define SITU 8

// What experts do between their products; the host has the same struct.
struct experts_how {
  u64 scale_stride, bias_stride;
  u32 experts; // of the bounds
  u32 kind;    // the activation
  u32 any;     // more than SwiGLU of gates and ups
  float limit, alpha;
};

inline float pick(bool condition, float a, float b) { return condition ? a : b; }
#if LANES > 1
inline vfloat pick(vint condition, vfloat a, vfloat b) { return choose(condition, a, b); }
#endif

template <typename F> inline F at_most(F x, float limit) { return pick(x > F(limit), F(limit), x); }
template <typename F> inline F within(F x, float limit) {
  return pick(x < F(-limit), F(-limit), at_most(x, limit));
}
template <typename F> inline F relu(F x) { return pick(x < F(0.0f), F(0.0f), x); }

// NaN where x is not finite, which the bounds of an activation would turn into a number.
template <typename F> inline F or_nan(F x, F value) {
  return pick(x - x == F(0.0f), value, F(as_float(0x7fc00000u)));
}

// Those with branches in them, lane by lane.
inline float situ(float g, float u, float beta, float linear) {
  const float gate = beta * tanh_f32(g / beta) * sigmoid(g);
  return gate * (linear > 0.0f ? linear * tanh_f32(u / linear) : u);
}

template <typename F, typename G> inline F by_lane(F g, F u, G &&f) {
#if LANES > 1
  if constexpr (!std::is_same_v<F, float>) {
    for (int l = 0; l < LANES; ++l)
      g[l] = f(float(g[l]), float(u[l]));
    return g;
  } else
#endif
    return f(g, u);
}

template <typename F> inline F bounded(F g, F u, const experts_how &h) {
  switch (h.kind) {
  case SWIGLU_CLAMPED:
    return canonical(at_most(silu(g), h.limit) * within(u, h.limit));
  case SWIGLU_LIMITED:
    return canonical(silu(at_most(g, h.limit)) * within(u, h.limit));
  case SWIGLU_OAI: {
    const F gate = at_most(g, h.limit), up = within(u, h.limit);
    return canonical(gate / (F(1.0f) + exp_f32(-(F(h.alpha) * gate))) * (up + F(1.0f)));
  }
  case RELU:
    return canonical(relu(g) * u);
  case RELU_SQUARED:
    return canonical(relu(g) * relu(g) * u);
  default:
    return canonical(by_lane(g, u, [&](float g, float u) { return situ(g, u, h.limit, h.alpha); }));
  }
}

template <typename F> inline F activate(F g, F u, const experts_how &h) {
  switch (h.kind) {
  case SWIGLU:
    return swiglu(g, u);
  case GELU_TANH:
    return canonical(gelu_tanh(g) * u);
  case GELU_ERF:
    return canonical(by_lane(g, u, [](float g, float) { return gelu_erf(g); }) * u);
  default:
    return or_nan(g, or_nan(u, bounded(g, u, h)));
  }
}

template <typename F> inline F activate_up(F u, u32 kind) {
  switch (kind) {
  case GELU_TANH:
    return canonical(gelu_tanh(u));
  case GELU_ERF:
    return canonical(by_lane(u, u, [](float u, float) { return gelu_erf(u); }));
  case RELU:
    return or_nan(u, relu(u));
  case RELU_SQUARED:
    return or_nan(u, relu(u) * relu(u));
  default:
    return canonical(silu(u));
  }
}

// The expert of a row: the last whose rows begin at it or before.
inline u32 expert_of(const u32 *bounds, u32 experts, u32 row) {
  u32 first = 0, count = experts;
  while (count > 1) {
    const u32 half = count / 2;
    if (bounds[first + half] <= row) {
      first += half;
      count -= half;
    } else {
      count = half;
    }
  }
  return first;
}

// One row of gate and up values, with its expert's scales and biases.
struct any_row {
  const float *values, *bias;
  u64 ffn;
  u32 order;
  bool affine;
  float gate_scale, up_scale;

  any_row(const float *row, u32 number, u32 hidden, u32 how, const float *scale,
          const float *biases, const u32 *bounds, const experts_how &h)
      : values(row), bias(nullptr), ffn(hidden), order(how), affine(scale || biases),
        gate_scale(1.0f), up_scale(1.0f) {
    if (!affine)
      return;
    const u64 expert = bounds ? expert_of(bounds, h.experts, number) : 0;
    if (scale) {
      gate_scale = scale[expert * h.scale_stride];
      up_scale = order == 2 ? gate_scale : scale[expert * h.scale_stride + 1];
    }
    if (biases)
      bias = biases + expert * h.bias_stride;
  }

  float value(u64 c, float scale) const {
    return affine ? fma(values[c], scale, bias ? bias[c] : 0.0f) : values[c];
  }
  float gate(u64 c) const { return value(order == 1 ? 2 * c : c, gate_scale); }
  float up(u64 c) const {
    return value(order == 1 ? 2 * c + 1 : order == 2 ? c : ffn + c, up_scale);
  }
  float hidden(u64 c, const experts_how &h) const {
    return order == 2 ? activate_up(up(c), h.kind) : activate(gate(c), up(c), h);
  }
  // LANES of them.
  vfloat hidden_vector(u64 c, const experts_how &h) const {
#if LANES > 1
    vfloat g = vfloat(0.0f), u;
    for (int l = 0; l < LANES; ++l) {
      u[l] = up(c + l);
      if (order != 2)
        g[l] = gate(c + l);
    }
    return order == 2 ? activate_up(u, h.kind) : activate(g, u, h);
#else
    return hidden(c, h);
#endif
  }
};
