// Transition vectors and launch vectors of phones, and their reports by `walsh`, on a card. Symbols
// as in `nextapp.shares` and `nextapp.privacy.walsh`; equal functions of
// `nextapp.fleet.vectors` and `nextapp.fleet.walsh` have the same names. Compiled without
// fused multiply-add and with sums in the order of the processor's loops, so that x is the
// processor's to the last bit; what comes after it is whole numbers.
//
//     transition_vectors, launch_vectors   x of each phone             a thread per phone
//     draw_coins                           seed and coin of a report   a thread per phone
//     choose_codewords                     j among the k best          a warp per phone
//     count_rows                           the tally                   a thread per report

#include "bits.cuh"
#include "columns.cuh"

// --- vectors -----------------------------------------------------------------------------------

// In the ℓ2 ball of the clip, divided by it; a clip of 0: to length 1.
__device__ inline void into_ball(double *x, int size, double clip) {
    double largest = 0.0, square = 0.0;
    for (int i = 0; i < size; i++) largest = x[i] > largest ? x[i] : largest;  // no entry is < 0
    if (largest == 0.0) return;
    for (int i = 0; i < size; i++) {
        x[i] /= largest;
        square += x[i] * x[i];
    }
    const double norm = sqrt(square);
    const bool longer = largest > clip / norm;
    for (int i = 0; i < size; i++) x[i] = longer ? x[i] / norm : x[i] * (largest / clip);
}

__device__ inline double squared_norm(const double *x, int size) {
    double square = 0.0;
    for (int i = 0; i < size; i++) square += x[i] * x[i];
    return square;
}

// v(j, i) = n(j→i) / √n(j→·), and `repeats` times that where i = j; then length 1, then the ball.
extern "C" __global__ void transition_vectors(const i32 *phones, i64 n, COLUMNS, i32 n_apps,
                                              double repeats, double clip, const i64 *starts,
                                              i32 *all_cells, double *all_x, double *squares) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= n) return;
    const Columns c = {COLUMN_NAMES};
    const i64 own = c.app_starts[phones[index]], first = c.transition_starts[phones[index]];
    const int size = (int)(starts[index + 1] - starts[index]);
    i32 *cells = all_cells + starts[index];
    double *x = all_x + starts[index];
    for (int row = 0, end; row < size; row = end) {  // transitions from one app follow each other
        const i32 last = c.move(first + row).previous;
        i64 n_after = 0;
        for (end = row; end < size; end++) {
            const Move move = c.move(first + end);
            if (move.previous != last) break;
            n_after += move.times;
        }
        for (int i = row; i < end; i++) {
            const Move move = c.move(first + i);
            cells[i] = c.apps[own + last] * (n_apps + 1) + c.apps[own + move.following];
            x[i] = (double)move.times / sqrt((double)n_after);
            if (move.following == last) x[i] *= repeats;
        }
    }
    into_ball(x, size, 0.0);
    into_ball(x, size, clip);
    squares[index] = squared_norm(x, size);
}

// √(share of the launches) of each own app; its length is 1.
extern "C" __global__ void launch_vectors(const i32 *phones, i64 n, COLUMNS, double clip,
                                          const i64 *starts, i32 *all_cells, double *all_x,
                                          double *squares) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= n) return;
    const Columns c = {COLUMN_NAMES};
    const i64 own = c.app_starts[phones[index]];
    const int size = (int)(starts[index + 1] - starts[index]);
    i32 *cells = all_cells + starts[index];
    double *x = all_x + starts[index];
    i64 n_launches = 0;
    for (int i = 0; i < size; i++) n_launches += c.counts[own + i];
    for (int i = 0; i < size; i++) {
        cells[i] = c.apps[own + i];
        x[i] = sqrt((double)c.counts[own + i] / (double)n_launches);
    }
    into_ball(x, size, clip);
    squares[index] = squared_norm(x, size);
}

// --- walsh -------------------------------------------------------------------------------------

constexpr int L = 64;             // Walsh functions in a codeword
constexpr int ROW_BLOCKS = L / 8;  // blocks of words with the rows ρ_l, 8 in each
constexpr double VECTOR_UNIT = 1 << 22;

// v(i), and as its highest bit whether δ(v) is −1.
__device__ inline unsigned place_of(unsigned entry, int n) {
    const unsigned multipliers[2] = {0x9E3779B1u, 0x85EBCA77u}, mask = (1u << n) - 1;
    unsigned v = entry;
    for (unsigned multiplier : multipliers) {
        v = v * multiplier & mask;
        v ^= v >> (n + 1) / 2;
    }
    return v | (unsigned)(__popc(v & v >> 1) & 1) << 31;
}

// Row l and row l + 1 of a word: the lower half first.
__device__ inline unsigned half_of(const Block &words, int place) {
    return (unsigned)(Bits::choose(words, place / 2) >> (place % 2 ? 32 : 0));
}

// Seeds, and j where the coin asks for no vector; else −1 − the place of j among the k best.
extern "C" __global__ void draw_coins(const i32 *phones, i64 n, u64 first_phone, u64 seed, u64 round,
                                      u64 purpose, u64 threshold, i32 m, i32 k, u64 *seeds,
                                      i32 *chosen) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= n) return;
    Bits bits(seed, first_phone + (u64)phones[index], round, purpose);
    seeds[index] = bits.word();
    const u64 coin = bits.word();
    chosen[index] = coin >= threshold ? (i32)below(bits, m) : -1 - (i32)below(bits, k);
}

// What a warp has room for in shared memory; `nextapp.fleet.gpu.walsh` counts its bytes.
struct Workspace {
    u64 *signs;                // (m,)   word j has the signs σ_jl
    i64 *s;                    // (m,)   √L x·g_j in units of 2^-22
    unsigned *rows, *places;   // (L,)   ρ_l;  (32,)   v(i) of the entries in hand, with δ
    i32 *values, *sums;        // (32,)   x there;  (size, n_parts)   a column per part, 2^i of them
};

// Whole numbers of 32 bits do: |Σ_v x(v) w_r(v)| is at most 2^22 times the root of the number of
// entries, of which there are 2^17 at the most.
__device__ inline void put(const Workspace &workspace, int lane, int n_parts, int first, int n, int size,
                           int n_entries) {
    const int column = lane & (n_parts - 1), part = first + column, turn = part % n;
    const unsigned row = workspace.rows[part], mask = (1u << n) - 1;
    for (int i = lane / n_parts; i < n_entries; i += 32 / n_parts) {
        const unsigned v = workspace.places[i] & mask;
        const unsigned minus = (__popc(row & v) ^ workspace.places[i] >> 31) & 1;
        const unsigned turned = (v >> turn | v << (n - turn)) & (size - 1);
        atomicAdd(workspace.sums + turned * n_parts + column, minus ? -workspace.values[i] : workspace.values[i]);
    }
}

// The Walsh and Hadamard transform of each column, in place.
__device__ inline void transform(i32 *sums, int lane, int n_parts, int size) {
    for (int half = 1; half < size; half *= 2) {
        for (int pair = lane / n_parts; pair < size / 2; pair += 32 / n_parts) {
            const int low = (pair & ~(half - 1)) * 2 | (pair & (half - 1));
            i32 *one = sums + low * n_parts + lane % n_parts, *other = one + half * n_parts;
            const i32 a = *one, b = *other;
            *one = a + b;
            *other = a - b;
        }
        __syncwarp();
    }
}

// s_j for all j: `_align`. n_parts of the L Walsh functions at a time, a column of `sums` each.
__device__ inline void align(const Workspace &workspace, int lane, int n_parts, u64 seed, u64 purpose, int n,
                             int m, const i32 *cells, const double *x, int n_entries,
                             i32 completing_cell, double completing) {
    const int size = m < 1 << n ? m : 1 << n;
    for (int block = lane; block < ROW_BLOCKS + (m + 3) / 4; block += 32) {
        const Block words = philox(seed, purpose, block + 1, 0, 0, 0);
        if (block < ROW_BLOCKS)
            for (int l = 0; l < 8; l++)
                workspace.rows[8 * block + l] = half_of(words, l) & ((1u << n) - 1);
        for (int j = 4 * (block - ROW_BLOCKS), at = 0; at < 4; at++)
            if (j + at >= 0 && j + at < m) workspace.signs[j + at] = Bits::choose(words, at);
    }
    for (int j = lane; j < m; j += 32) workspace.s[j] = 0;
    for (int first = 0; first < L; first += n_parts) {
        for (int at = lane; at < size * n_parts; at += 32) workspace.sums[at] = 0;
        for (int start = 0; start <= n_entries; start += 32) {  // the last one completes the length
            const int i = start + lane;
            if (i <= n_entries) {
                workspace.places[lane] = place_of(i < n_entries ? cells[i] : completing_cell, n);
                workspace.values[lane] = (i32)llrint((i < n_entries ? x[i] : completing) * VECTOR_UNIT);
            }
            __syncwarp();
            const int left = n_entries + 1 - start;
            put(workspace, lane, n_parts, first, n, size, left < 32 ? left : 32);
            __syncwarp();
        }
        transform(workspace.sums, lane, n_parts, size);
        for (int j = lane; j < m; j += 32) {
            i64 total = 0;
            for (int at = 0; at < n_parts; at++) {
                const int column = (at + j * n_parts / 32) & (n_parts - 1);  // no bank twice
                const i32 value = workspace.sums[(j & (size - 1)) * n_parts + column];
                total += workspace.signs[j] >> (first + column) & 1 ? value : -value;
            }
            workspace.s[j] += total;
        }
        __syncwarp();
    }
}

// How many of s are at least `least`; every lane knows it.
__device__ inline int count_from(const i64 *s, int m, int lane, i64 least) {
    int count = 0;
    for (int j = lane; j - lane < m; j += 32)
        count += __popc(__ballot_sync(ALL, j < m && s[j] >= least));
    return count;
}

// Which of the k largest of s stands at `place` in ascending order; of equals the earlier.
__device__ inline int among_best(const i64 *s, int m, int k, int place, int lane) {
    i64 last = -(1ll << 38), high = 1ll << 38;  // |s| < L · 2^31
    while (last < high) {                       // the k-th largest
        const i64 middle = last + (high - last + 1) / 2;
        if (count_from(s, m, lane, middle) >= k)
            last = middle;
        else
            high = middle - 1;
    }
    int equals = k - count_from(s, m, lane, last + 1);  // of them that are among the best
    for (int start = 0; start < m; start += 32) {
        const int j = start + lane;
        const unsigned level = __ballot_sync(ALL, j < m && s[j] == last);
        const bool counts = __popc(level & ((1u << lane) - 1)) < equals;
        unsigned best = __ballot_sync(ALL, j < m && (s[j] > last || (s[j] == last && counts)));
        const int here = __popc(best);
        if (place < here) {
            for (; place > 0; place--) best &= best - 1;
            return start + __ffs(best) - 1;
        }
        place -= here;
        equals -= __popc(level) < equals ? __popc(level) : equals;
    }
    return -1;
}

struct alignas(16) four {
    unsigned words[4];
};

// `reports`: which of seeds and chosen they are; `workspace_bytes` a multiple of 16.
extern "C" __global__ void choose_codewords(const i64 *reports, i64 n_reports, u64 purpose, i32 n,
                                            i32 m, i32 k, i32 n_parts, i32 workspace_bytes,
                                            const i64 *starts, const i32 *cells, const double *x,
                                            const double *squares, i32 completing_cell,
                                            const u64 *seeds, i32 *chosen) {
    extern __shared__ four room[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 index = (i64)blockIdx.x * (blockDim.x / 32) + warp;
    if (index >= n_reports) return;  // the whole warp
    Workspace workspace;
    workspace.signs = reinterpret_cast<u64 *>(reinterpret_cast<char *>(room) + warp * workspace_bytes);
    workspace.s = reinterpret_cast<i64 *>(workspace.signs + m);
    workspace.rows = reinterpret_cast<unsigned *>(workspace.s + m);
    workspace.places = workspace.rows + L;
    workspace.values = reinterpret_cast<i32 *>(workspace.places + 32);
    workspace.sums = workspace.values + 32;
    const i64 report = reports[index], start = starts[index];
    const double left = 1.0 - squares[index];
    align(workspace, lane, n_parts, seeds[report], purpose, n, m, cells + start, x + start,
          (int)(starts[index + 1] - start), completing_cell, sqrt(left > 0.0 ? left : 0.0));
    const int j = among_best(workspace.s, m, k, -1 - chosen[report], lane);
    __syncwarp();  // all have read what lane 0 writes over
    if (lane == 0) chosen[report] = j;
}

// Each report adds the sign σ_jl at the row ρ_l XOR (j rotated left by l), for all l.
extern "C" __global__ void count_rows(i64 n_reports, u64 purpose, i32 n, const u64 *seeds,
                                      const i32 *chosen, i64 *counts) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= n_reports) return;
    const u64 seed = seeds[index], at = L / 2 + (u64)chosen[index];
    const u64 signs = Bits::choose(philox(seed, purpose, at / 4 + 1, 0, 0, 0), at);
    const unsigned mask = (1u << n) - 1, low = (unsigned)chosen[index] & mask;
    for (int block = 0; block < ROW_BLOCKS; block++) {
        const Block words = philox(seed, purpose, block + 1, 0, 0, 0);
        for (int place = 0; place < 8; place++) {
            const int l = 8 * block + place, turn = l % n;
            const unsigned row = (half_of(words, place) ^ (low << turn | low >> (n - turn))) & mask;
            const u64 one = signs >> l & 1 ? 1ull : ~0ull;  // −1
            atomicAdd(reinterpret_cast<u64 *>(counts + row), one);
        }
    }
}
