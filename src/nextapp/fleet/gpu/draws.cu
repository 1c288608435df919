// What is drawn on a card: positions and signs of harmony, and the law of the sum. One thread a phone but for the last. Compiled without fused multiply-add, so that
// doubles are those of the processor; equal functions of `nextapp.fleet` have the same names.

#include "bits.cuh"
#include "columns.cuh"

// --- harmony: `nextapp.fleet.encoders` -----------------------------------------------------------

// Positions (n, k), ascending, and the k words of the signs.
extern "C" __global__ void draw_positions(const i32 *phones, i64 n, u64 first_phone, u64 seed,
                                          u64 round, u64 purpose, i64 bound, i32 k, i32 *positions,
                                          u64 *words) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= n) return;
    Bits bits(seed, first_phone + (u64)phones[index], round, purpose);
    i32 *out = positions + index * k;
    for (int taken = 0; taken < k; taken++) {
        const i64 top = bound - k + taken;
        i32 number = (i32)below(bits, (u64)top + 1);
        int low = 0, high = taken;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (out[middle] < number)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < taken && out[low] == number) {
            number = (i32)top;  // larger than all before it
            low = taken;
        }
        for (int later = taken; later > low; later--) out[later] = out[later - 1];
        out[low] = number;
    }
    for (int place = 0; place < k; place++) words[index * k + place] = bits.word();
}

// Whether a word lies below `nextapp.randomness.sign_threshold`.
__device__ inline bool is_positive(u64 drawn, double x, u64 floor) {
    const double wanted = (1.0 + x) * 0x1p52;
    const u64 steps = (u64)(wanted < 0.0 ? 0.0 : wanted > 0x1p53 ? 0x1p53 : wanted);
    if (floor == 0) return steps == 1ull << 53 || drawn < steps << 11;
    const u64 span = 0 - 2 * floor;
    return drawn < floor + (__umul64hi(span, steps) << 11 | span * steps >> 53);
}

// How often each position came with either sign, of the entries of F (n, k).
template <typename Real>
__device__ inline void sign(i64 size, const i32 *positions, const u64 *words, const Real *entries,
                            double clip, u64 floor, unsigned *n_positive, unsigned *n_negative) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= size) return;
    const double entry = (double)entries[index];
    const double x = (entry < -clip ? -clip : entry > clip ? clip : entry) / clip;
    const bool up = is_positive(words[index], x, floor);
    atomicAdd((up ? n_positive : n_negative) + positions[index], 1u);
}

extern "C" __global__ void sign_float(i64 size, const i32 *positions, const u64 *words,
                                      const float *entries, double clip, u64 floor,
                                      unsigned *n_positive, unsigned *n_negative) {
    sign(size, positions, words, entries, clip, floor, n_positive, n_negative);
}

extern "C" __global__ void sign_double(i64 size, const i32 *positions, const u64 *words,
                                       const double *entries, double clip, u64 floor,
                                       unsigned *n_positive, unsigned *n_negative) {
    sign(size, positions, words, entries, clip, floor, n_positive, n_negative);
}

// --- the law of the sum of walsh, α = 0: `nextapp.fleet.encoders` ----------------------------------

constexpr int LEAN_LANES = 32;  // one warp a phone

__device__ inline double sum_warp(double value) {
    for (int away = 16; away > 0; away /= 2) value += __shfl_xor_sync(ALL, value, away);
    return value;
}

__device__ inline double quotient(double r, const double *above, const double *below_) {
    double top = 0, bottom = 0;
    for (int power = 0; power < 8; power++) {
        top = top * r + above[power];
        bottom = bottom * r + below_[power];
    }
    return top / bottom;
}

// AS 241; `coefficients` are those of `nextapp.fleet.draws`, 8 above and 8 below, three times.
__device__ inline double normal_quantile(double p, const double *coefficients) {
    const double q = p - 0.5;
    if (fabs(q) <= 0.425) return quotient(0.180625 - q * q, coefficients, coefficients + 8) * q;
    const double r = sqrt(-log(q <= 0.0 ? p : 1.0 - p));
    const double size = r <= 5.0 ? quotient(r - 1.6, coefficients + 16, coefficients + 24)
                                 : quotient(r - 5.0, coefficients + 32, coefficients + 40);
    return q < 0.0 ? -size : size;
}

// `Lean`, the tables, and the scale of the whole numbers that are summed, as parameters of a kernel.
#define LAW                                                                                     \
    u64 threshold, i32 k_best, i32 m, const double *coefficients, const i32 *table, double unit, \
        double scale
#define LAW_NAMES threshold, k_best, m, coefficients, table, unit, scale

struct Law {
    u64 threshold;
    i32 k_best, m;
    const double *coefficients;
    const i32 *table;
    double unit, scale;
};

// t of one report; every lane knows it.
__device__ inline double draw_lean(Bits &bits, const Law &law, int lane) {
    if (bits.word() >= law.threshold) {
        const u64 first = bits.word();
        return as_normal(first, bits.word());
    }
    const i32 n_spacings = (i32)below(bits, law.k_best) + 1;
    double spacings = 0;
    for (i32 i = lane; i < n_spacings; i += LEAN_LANES)
        spacings += as_exponential(bits.word_at(bits.at + i)) / (law.m - i);
    bits.jump(bits.at + n_spacings);
    return -normal_quantile(-expm1(-sum_warp(spacings)), law.coefficients);
}

// Σ (t x + g − (x·g) x) at the own entries of one phone, x (k, d); a row takes whole words.
// place(row, entry) says where in `sums` an entry stands.
template <typename Real, typename Place>
__device__ inline void lean(Bits bits, const Law &law, const Real *x, int k, int d, double square,
                            Place place, i64 *sums) {
    const int lane = threadIdx.x % LEAN_LANES, words = (d + 3) / 4;
    const double t = draw_lean(bits, law, lane), left = 1.0 - square;
    const u64 first = bits.word();
    const double rest = sqrt(left > 0.0 ? left : 0.0) * as_normal(first, bits.word());
    const u64 from = bits.at, stop = from + (u64)k * words;
    double product = 0;
    for (int again = 0; again < 2; again++) {  // x·g, then the sum
        if (again) product = sum_warp(product) + rest;
        for (u64 block = from / 4 + lane; block * 4 < stop; block += LEAN_LANES) {
            const Block drawn = bits.block_of(block * 4);
            for (u64 number = block * 4; number < block * 4 + 4; number++) {
                if (number < from || number >= stop) continue;
                u64 four = Bits::choose(drawn, number);
                const int row = (int)((number - from) / words);
                const int y = (int)((number - from) % words) * 4;
                for (int entry = y; entry < y + 4 && entry < d; entry++, four >>= 16) {
                    const double z = law.table[four & 0xffff] * law.unit;
                    const double x_y = (double)x[(i64)row * d + entry];
                    if (again) {
                        const i64 whole = llrint(((t - product) * x_y + z) * law.scale);
                        atomicAdd(reinterpret_cast<u64 *>(sums + place(row, entry)), (u64)whole);
                    } else {
                        product += x_y * z;
                    }
                }
            }
        }
    }
}

template <typename Real>
__device__ inline void lean_gradient(const i32 *phones, i64 n, u64 first_phone, u64 seed, u64 round,
                                     u64 purpose, const i64 *app_starts, const i32 *apps,
                                     const i64 *row_starts, const Real *rows, const Real *squares,
                                     i32 d, LAW, i64 *sums, i64 *owners) {
    const i64 index = (i64)blockIdx.x * (blockDim.x / LEAN_LANES) + threadIdx.x / LEAN_LANES;
    if (index >= n) return;  // the whole warp
    const i64 phone = phones[index], start = app_starts[phone];
    const int k = (int)(app_starts[phone + 1] - start);
    auto place = [=](int row, int entry) { return (i64)apps[start + row] * d + entry; };
    lean(Bits(seed, first_phone + phone, round, purpose), Law{LAW_NAMES},
         rows + row_starts[index] * d, k, d, (double)squares[index], place, sums);
    for (int row = threadIdx.x % LEAN_LANES; row < k; row += LEAN_LANES)
        atomicAdd(reinterpret_cast<u64 *>(owners + apps[start + row]), 1ull);
}

extern "C" __global__ void lean_float(const i32 *phones, i64 n, u64 first_phone, u64 seed,
                                      u64 round, u64 purpose, const i64 *app_starts,
                                      const i32 *apps, const i64 *row_starts, const float *rows,
                                      const float *squares, i32 d, LAW, i64 *sums, i64 *owners) {
    lean_gradient(phones, n, first_phone, seed, round, purpose, app_starts, apps, row_starts, rows,
                  squares, d, LAW_NAMES, sums, owners);
}

extern "C" __global__ void lean_double(const i32 *phones, i64 n, u64 first_phone, u64 seed,
                                       u64 round, u64 purpose, const i64 *app_starts,
                                       const i32 *apps, const i64 *row_starts, const double *rows,
                                       const double *squares, i32 d, LAW, i64 *sums, i64 *owners) {
    lean_gradient(phones, n, first_phone, seed, round, purpose, app_starts, apps, row_starts, rows,
                  squares, d, LAW_NAMES, sums, owners);
}
