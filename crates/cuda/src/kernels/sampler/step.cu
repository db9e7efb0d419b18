// One guided sampler step: the next sample, on request blended with that of the frame before, the denoised one and the
// network's next input.
//
// The coefficients are a row of a table in memory, picked by a step number in memory, so that no step waits for the
// host. A step outside the table is reported, and nothing is written.
#include "specialisation.cuh"
#include "grid.cuh"
#include "fault.cuh"
#include "numbers.cuh"

constexpr int threads = 256;

struct Places {
    SAMPLE *next;
    SAMPLE *denoised;
    SAMPLE *scaled;
    const SAMPLE *sample;
    const PREDICTION *prediction;
    const f32 *table;
    const i32 *step;
    const f32 *guidance;
    const HISTORY *history;
    const NOISE *noise;
    const PREVIOUS *previous;
    const f32 *strength;
};

extern "C" __global__ void __launch_bounds__(threads)
    sampler_step(Places at, i64 count, i64 per_image, i64 frames, i64 steps, float clip, i32 *fault, i32 number) {
    wait_for_launch_before();
    const i64 first = (i64(blockIdx.x) * threads + threadIdx.x) * VECTOR;
    const i32 step = *at.step;
    if (step < 0 || step >= steps) {
        if (first == 0) report_fault(fault, number, step);
        return;
    }
    if (first >= count) return;
    float of_denoised[4], of_next[4];
    load(of_denoised, at.table + i64(step) * 8);
    load(of_next, at.table + i64(step) * 8 + 4);
    const float denoised_sample = of_denoised[0], denoised_prediction = of_denoised[1];
    const float next_sample = of_denoised[2], next_denoised = of_denoised[3];
    const float next_history = of_next[0], next_noise = of_next[1];
    const float input_scale = of_next[2], next_prediction = of_next[3];

    float sample[VECTOR], guided[VECTOR];
    load(sample, at.sample + first);
    load(guided, at.prediction + first);
    if (GUIDED) {
        float conditional[VECTOR];
        load(conditional, at.prediction + count + first);
        // A vector lies within one image.
        const float guidance = at.guidance[first / per_image % frames];
#pragma unroll
        for (int i = 0; i < VECTOR; i++) guided[i] += guidance * (conditional[i] - guided[i]);
    }
    float denoised[VECTOR], next[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        float clean = denoised_sample * sample[i] + denoised_prediction * guided[i];
        // Written so that NaN stays NaN.
        if (CLIPPED) clean = clean < -clip ? -clip : clean > clip ? clip : clean;
        denoised[i] = clean;
        next[i] = next_sample * sample[i] + next_denoised * clean + next_prediction * guided[i];
    }
    if (WITH_HISTORY) {
        float history[VECTOR];
        load(history, at.history + first);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) next[i] += next_history * history[i];
    }
    if (WITH_NOISE) {
        float noise[VECTOR];
        load(noise, at.noise + first);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) next[i] += next_noise * noise[i];
    }
    if (BLENDED) {
        float previous[VECTOR];
        load(previous, at.previous + first);
        const float strength = *at.strength;
        // Exact for strengths of 0 and 1.
#pragma unroll
        for (int i = 0; i < VECTOR; i++) next[i] = fmaf(strength, previous[i], (1.0f - strength) * next[i]);
    }
    store(at.next + first, next);
    if (EMIT_DENOISED) {
        store(at.denoised + first, denoised);
    }
    if (EMIT_SCALED) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) next[i] *= input_scale;
        store(at.scaled + first, next);
    }
}
