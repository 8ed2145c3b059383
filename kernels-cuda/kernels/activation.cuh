// Hidden values from gate and up values, as strata-core's Activation has them.
#pragma once
#include "functions.cuh"

enum ActivationKind {
    swiglu_plain,
    swiglu_clamped,
    swiglu_limited,
    swiglu_oai,
    gelu_by_tanh,
    gelu_by_erf,
    relu_plain,
    relu_squared,
    situ,
};

// What experts do between their products. Scale and bias are null where there is none.
struct ExpertsArgs {
    const float *scale; // of gate and up, or of up alone: a row an expert
    const float *bias;  // of every column: a row an expert
    const u32 *bounds;  // rows of the experts; null: all are of expert 0
    i64 scale_stride, bias_stride;
    u32 experts;
    u32 kind;
    float limit, alpha;
};

DEVICE float at_most(float x, float limit) { return x > limit ? limit : x; }
DEVICE float within(float x, float limit) { return x < -limit ? -limit : at_most(x, limit); }
DEVICE float relu(float x) { return x < 0.0f ? 0.0f : x; }

// Whether bounds could turn what is not finite into a number: it is NaN instead.
DEVICE bool is_bounded(u32 kind) { return kind != swiglu_plain && kind != gelu_by_tanh && kind != gelu_by_erf; }

DEVICE float activate(u32 kind, float limit, float alpha, float g, float u) {
    if (is_bounded(kind) && !(is_finite(g) && is_finite(u))) return bits_f32(0x7fc00000);
    switch (kind) {
    case swiglu_clamped: return canonical(at_most(silu(g), limit) * within(u, limit));
    case swiglu_limited: return canonical(silu(at_most(g, limit)) * within(u, limit));
    case swiglu_oai: {
        const float gate = at_most(g, limit), up = within(u, limit);
        return canonical(div32(gate, 1.0f + exp_exact(-(alpha * gate))) * (up + 1.0f));
    }
    case gelu_by_tanh: return canonical(gelu_tanh(g) * u);
    case gelu_by_erf: return canonical(gelu_erf(g) * u);
    case relu_plain: return canonical(relu(g) * u);
    case relu_squared: return canonical(relu(g) * relu(g) * u);
    case situ: {
        const float gate = limit * tanh_exact(div32(g, limit)) * sigmoid(g);
        return canonical(gate * (alpha > 0.0f ? alpha * tanh_exact(div32(u, alpha)) : u));
    }
    default: return swiglu(g, u);
    }
}

DEVICE float activate_up(u32 kind, float u) {
    if (is_bounded(kind) && !is_finite(u)) return bits_f32(0x7fc00000);
    switch (kind) {
    case gelu_by_tanh: return canonical(gelu_tanh(u));
    case gelu_by_erf: return canonical(gelu_erf(u));
    case relu_plain: return canonical(relu(u));
    case relu_squared: return canonical(relu(u) * relu(u));
    default: return canonical(silu(u));
    }
}

// The expert of a row: the last whose rows begin at it or before.
DEVICE u32 expert_of(const u32 *bounds, u32 experts, u32 row) {
    u32 first = 0, count = experts;
    while (count > 1) {
        const u32 half = count / 2;
        if (bounds[first + half] <= row) first += half, count -= half;
        else count = half;
    }
    return first;
}

// The hidden values of one row. `order` is 0 where all gates come before all
// ups, 1 where they come in turns, 2 where there are ups alone.
struct HiddenRow {
    const float *values, *bias;
    i64 ffn;
    u32 order, kind;
    float limit, alpha, gate_scale, up_scale;
    bool affine;

    DEVICE HiddenRow(const float *row, u32 number, i64 hidden, u32 how, const ExpertsArgs &experts)
        : values(row), bias(nullptr), ffn(hidden), order(how), kind(experts.kind), limit(experts.limit),
          alpha(experts.alpha), gate_scale(1.0f), up_scale(1.0f), affine(experts.scale || experts.bias) {
        if (!affine) return;
        const u32 expert = experts.bounds ? expert_of(experts.bounds, experts.experts, number) : 0;
        if (experts.scale) {
            gate_scale = experts.scale[expert * experts.scale_stride];
            up_scale = order == 2 ? gate_scale : experts.scale[expert * experts.scale_stride + 1];
        }
        if (experts.bias) bias = experts.bias + expert * experts.bias_stride;
    }

    DEVICE float value(i64 c, float scale) const {
        return affine ? fma32(values[c], scale, bias ? bias[c] : 0.0f) : values[c];
    }

    DEVICE float at(i64 c) const {
        if (order == 2) return activate_up(kind, value(c, up_scale));
        const i64 gate = order == 1 ? 2 * c : c, up = order == 1 ? 2 * c + 1 : ffn + c;
        return activate(kind, limit, alpha, value(gate, gate_scale), value(up, up_scale));
    }
};
