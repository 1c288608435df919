// The phone's step on a card: h, p, F, clip and sum; the third form of `nextapp.model`, held to the
// others by tests. Symbols as there and in `nextapp.fleet.stepping`. Compiled with
//
//     DIM    d, the length of an app vector, 64 at most
//     REAL   float or double
//     DENSE  1 where α > 0, and every app has a share of the gradient; else 0
//
// LANES threads of a warp share a phone; a warp has 32 / LANES phones. With k own apps,
// G = Q_own Q_ownᵀ and N the table of transitions, row and column as in S,
//
//     h_i = Σ_j S_ij G_ij          S_ij = N_ij / denominator_i                  eqs. (5), (7)
//     A p = b                      Gauss and Jordan, no pivoting: A is positive eq. (10)
//     F_i = D_i p + Σ_j B_ij q_j   B = D S + Sᵀ D, symmetric                    eq. (12)
//
// so S Q is never made. Every sum over phones is a sum of whole numbers, the terms rounded to
// multiples of 1 / scale: it is the same whatever the order in which the phones are played.

#ifndef MIN_BLOCKS  // of 128 threads on a multiprocessor; it bounds the registers of a thread
#define MIN_BLOCKS (sizeof(REAL) == 8 ? 2 : DIM <= 32 ? 4 : 3)
#endif

typedef REAL real;
typedef long long i64;
typedef unsigned long long u64;

constexpr int LANES = DIM <= 16 ? 8 : DIM <= 32 ? 16 : 32;
constexpr int EDGE = DIM <= 32 ? 4 : 8;
constexpr int WIDTH = (DIM + EDGE - 1) / EDGE * EDGE;  // d with zeros up to whole vectors
constexpr int ROWS = (WIDTH + LANES - 1) / LANES;      // rows of A that a lane holds: lane + LANES R
constexpr int SPAN = LANES < 16 ? LANES : 16;          // own apps side by side, EACH of them a lane,
constexpr int PART = WIDTH / (LANES / SPAN);           // or two lanes an app with half its columns
constexpr int FEW = 16 / SPAN, MANY = FEW + 1;         // EACH: for up to 16 apps, and for more
constexpr int STRIDE = WIDTH + 4;                      // of a row in shared memory: no bank twice
constexpr int CHUNK = DIM <= 16 || WIDTH % 8 ? 4 : 8;  // steps of the elimination of one width
constexpr int UNROLLED = DIM <= 16 ? CHUNK : 1;         // of them; more would not fit the cache
constexpr int AHEAD = 96 / LANES;                      // transitions a lane loads early
constexpr int NONE = 3, EQUATION = 1, EXAMPLE = 0;     // READING_CODES
constexpr int LINF = 1, L1 = 2, L2 = 3;                // BALLS; 0 is none
constexpr unsigned ALL = 0xffffffffu;

struct alignas(16) four {
    real x, y, z, w;
};

__device__ inline four load(const real *from) { return *reinterpret_cast<const four *>(from); }

// Over the lanes of a phone.
__device__ inline real sum_lanes(real value) {
    for (int away = LANES / 2; away > 0; away /= 2) value += __shfl_xor_sync(ALL, value, away);
    return value;
}

__device__ inline real max_lanes(real value) {
    for (int away = LANES / 2; away > 0; away /= 2) {
        const real other = __shfl_xor_sync(ALL, value, away);
        value = other > value ? other : value;
    }
    return value;
}

__device__ inline int max_warp(int value) {
    for (int away = 16; away > 0; away /= 2) {
        const int other = __shfl_xor_sync(ALL, value, away);
        value = other > value ? other : value;
    }
    return value;
}

__device__ inline real size_of(real value) { return value < 0 ? -value : value; }

__device__ inline real cut(real value, real most) {
    return value < -most ? -most : value > most ? most : value;
}

__device__ inline void add_whole(i64 *sums, i64 place, real term, real scale) {
    const i64 whole = llrint(term * scale);
    if (whole != 0) atomicAdd(reinterpret_cast<u64 *>(sums + place), (u64)whole);
}

// q·p of any app, p in shared memory.
__device__ inline real taste_of(const real *Q, i64 app, const real *p) {
    real product = 0;
#pragma unroll
    for (int x = 0; x < WIDTH; x++) product += Q[app * WIDTH + x] * p[x];
    return product;
}

// Numbers of the workspace of one phone with room for `capacity` apps. Rows of F take the place of own
// where all apps are done at once.
__device__ inline int workspace_size(int capacity) {
    const int own = capacity * STRIDE * (capacity > MANY * SPAN ? 2 : 1);
    const int table = (capacity * (capacity + 1) + 3) / 4 * 4;
    return own + table + 5 * capacity + 2 * (WIDTH + 4) + WIDTH;
}

template <bool SCRATCH, int EACH>
__device__ inline void play(
    // which phones: their numbers in the fleet
    const int *phones, i64 n, int capacity, real *scratch,
    // the fleet's columns; a transition is a word of `moves`, or stands in three columns
    const i64 *app_starts, const int *apps, const int *counts, const i64 *transition_starts,
    const unsigned *moves, const short *previous, const short *following, const int *times,
    // the broadcast: Q (n_apps, WIDTH) and QᵀQ (WIDTH, WIDTH), padded by zeros;
    const real *Q, const real *gram, int n_apps, double longest, double lam, double alpha,
    double gamma, int reading,
    // p (n_phones, DIM)
    real *user_vectors,
    // the clip, and what is summed: x in units of it, in whole numbers of 1 / scale
    int ball, double clip, double scale, double limit, i64 *sums, u64 *largest,
    u64 *first_bad,
    // for each phone played: its loss, c0 of x or 0 where the background is not added by Σ c0 p pᵀ
    real *losses, real *common_c0, real *squares_of_x,
    // F at positions app·d + column, n_positions a phone
    const int *positions, int n_positions, real *entries,
    // x at the own apps, row by row from row_starts on, or null
    const i64 *row_starts, real *rows) {
    extern __shared__ four room[];
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const i64 index = (i64)blockIdx.x * (blockDim.x / LANES) + group;
    const bool here = index < n;
    const i64 phone = here ? (i64)phones[index] : 0;
    const i64 start = app_starts[phone];
    const int k = here ? (int)(app_starts[phone + 1] - start) : 0;
    const i64 first_move = transition_starts[phone];
    const int n_moves = here ? (int)(transition_starts[phone + 1] - first_move) : 0;
    const int most = max_warp(k);  // of the phones of the warp: they walk in step
    unsigned ahead[AHEAD];
#pragma unroll
    for (int A = 0; A < AHEAD; A++) {
        const int e = lane + LANES * A;
        ahead[A] = moves && e < n_moves ? moves[first_move + e] : 0;
    }

    const int workspace = workspace_size(capacity);
    real *own = SCRATCH ? scratch + index * workspace
                        : reinterpret_cast<real *>(room) + group * workspace;
    real *F = capacity > MANY * SPAN ? own + capacity * STRIDE : own;
    real *N = F + capacity * STRIDE;
    const int n_stride = capacity + 1;  // capacity is even: no bank twice along rows or columns
    real *c = N + (capacity * n_stride + 3) / 4 * 4;
    real *h = c + capacity;
    real *inverse = h + capacity;  // of the denominators of S, times D once that is known
    real *tastes = inverse + capacity;
    int *mine = reinterpret_cast<int *>(tastes + capacity);
    real *column = tastes + 2 * capacity;  // two of them, in turn
    real *p = column + 2 * (WIDTH + 4);

    // c and c0, eq. (9)
    double total = 0;
    for (int i = lane; i < most; i += LANES) {
        const bool is_own = i < k;
        const double count = is_own ? (double)counts[start + i] : 0.0;
        const double power = !is_own ? 0.0 : gamma == 1.0 ? count : pow(count, gamma);
        total += power;
        c[i] = (real)power;
        mine[i] = is_own ? apps[start + i] : -1;
    }
    for (int away = LANES / 2; away > 0; away /= 2) total += __shfl_xor_sync(ALL, total, away);
    total += alpha * n_apps;
    const double share = total > 0 ? 1.0 / total : 0.0;
    const real c0 = DENSE && here ? (real)(alpha * share) : 0;
    for (int v = 4 * lane; v < most * n_stride; v += 4 * LANES)
        *reinterpret_cast<four *>(N + v) = {0, 0, 0, 0};
    __syncwarp();
    for (int i = lane; i < most; i += LANES) c[i] = i < k ? (real)((c[i] + alpha) * share) : 0;
    for (int v = lane; v < most * (WIDTH / 4); v += LANES) {
        const int i = v / (WIDTH / 4), x = v % (WIDTH / 4) * 4;
        four q = {0, 0, 0, 0};
        if (mine[i] >= 0) q = load(Q + (i64)mine[i] * WIDTH + x);
        *reinterpret_cast<four *>(own + i * STRIDE + x) = q;
    }
    if (reading != NONE) {
        const int down = reading == EXAMPLE ? n_stride : 1, along = reading == EXAMPLE ? 1 : n_stride;
#pragma unroll
        for (int A = 0; A < AHEAD; A++) {
            const unsigned move = ahead[A];
            if (move) N[(move & 255) * down + (move >> 8 & 255) * along] = (real)(move >> 16);
        }
        for (int e = lane + (moves ? LANES * AHEAD : 0); e < n_moves; e += LANES) {
            const i64 at = first_move + e;
            const int before = moves ? moves[at] & 255 : previous[at];
            const int after = moves ? moves[at] >> 8 & 255 : following[at];
            N[before * down + after * along] = moves ? (real)(moves[at] >> 16) : (real)times[at];
        }
    }
    __syncwarp();

    // h, eqs. (5), (7)
    const int part = lane / SPAN * PART, place = lane % SPAN;
    for (int base = 0; base < most; base += SPAN * EACH) {
        int row[EACH];
        real q[EACH][PART], above[EACH], below[EACH];
#pragma unroll
        for (int E = 0; E < EACH; E++) {
            const int i = base + place + SPAN * E;
            row[E] = i < most ? i : 0;
            above[E] = below[E] = 0;
#pragma unroll
            for (int x = 0; x < PART; x += 4) {
                const four some = load(own + row[E] * STRIDE + part + x);
                q[E][x] = some.x;
                q[E][x + 1] = some.y;
                q[E][x + 2] = some.z;
                q[E][x + 3] = some.w;
            }
        }
        for (int j = 0; j < most; j++) {
            real even[EACH], odd[EACH];  // two sums, so that neither waits for the other
#pragma unroll
            for (int E = 0; E < EACH; E++) even[E] = odd[E] = 0;
#pragma unroll
            for (int x = 0; x < PART; x += 4) {
                const four other = load(own + j * STRIDE + part + x);
#pragma unroll
                for (int E = 0; E < EACH; E++) {
                    even[E] += q[E][x] * other.x;
                    odd[E] += q[E][x + 1] * other.y;
                    even[E] += q[E][x + 2] * other.z;
                    odd[E] += q[E][x + 3] * other.w;
                }
            }
#pragma unroll
            for (int E = 0; E < EACH; E++) {
                const real n_ij = N[row[E] * n_stride + j];
                above[E] += n_ij * (even[E] + odd[E]);
                below[E] += n_ij;
            }
        }
#pragma unroll
        for (int E = 0; E < EACH; E++) {
            const int i = base + place + SPAN * E;
            if (LANES > SPAN) above[E] += __shfl_xor_sync(ALL, above[E], SPAN);
            if (reading == EQUATION) {
                below[E] = 0;
                for (int j = 0; j < most; j++) below[E] += N[j * n_stride + row[E]];
            }
            const real one_over = below[E] > 0 ? 1 / below[E] : 0;
            if (i < most && lane < SPAN) {
                inverse[i] = one_over;
                h[i] = above[E] * one_over;
            }
        }
    }
    __syncwarp();

    // p, eq. (10)
    real p_own[ROWS];
    {
        real a[ROWS][WIDTH], b[ROWS], pivot[ROWS];  // the pivots' inverses
#pragma unroll
        for (int R = 0; R < ROWS; R++) {
            const int r = lane + LANES * R;
            const real on_diagonal = r < DIM ? (real)lam : (real)1;  // 1: the zeros of the padding
            b[R] = pivot[R] = 0;
#pragma unroll
            for (int x = 0; x < WIDTH; x++) {
                a[R][x] = x == r ? on_diagonal : 0;
                if (DENSE && r < WIDTH) a[R][x] += c0 * gram[r + x * WIDTH];
            }
        }
        for (int i = 0; i < most; i++) {
            const real weight = DENSE ? c[i] - c0 : c[i], pull = c[i] * (1 - h[i]);
            real scaled[ROWS];
#pragma unroll
            for (int R = 0; R < ROWS; R++) {
                const int r = lane + LANES * R;
                const real q_r = r < WIDTH ? own[i * STRIDE + r] : 0;
                b[R] += pull * q_r;
                scaled[R] = weight * q_r;
            }
#pragma unroll
            for (int x = 0; x < WIDTH; x += 4) {
                const four q = load(own + i * STRIDE + x);
#pragma unroll
                for (int R = 0; R < ROWS; R++) {
                    a[R][x] += scaled[R] * q.x;
                    a[R][x + 1] += scaled[R] * q.y;
                    a[R][x + 2] += scaled[R] * q.z;
                    a[R][x + 3] += scaled[R] * q.w;
                }
            }
        }
        // In step j every row but j gets a zero in column j, and the columns move one to the left:
        // a[R][x] is column j + x, `now` column j from row j on, which by symmetry is row j.
#pragma unroll
        for (int from = 0; from < WIDTH; from += CHUNK) {
#pragma unroll UNROLLED
            for (int j = from; j < from + CHUNK; j++) {
                real *now = column + j % 2 * (WIDTH + 4);
#pragma unroll
                for (int R = 0; R < ROWS; R++) {
                    const int r = lane + LANES * R;
                    if (r >= j && r < WIDTH) now[r - j] = a[R][0];
                    if (r == j) now[WIDTH] = b[R];
                }
                __syncwarp();
                const real one_over = 1 / now[0], b_j = now[WIDTH];
                real factor[ROWS];
#pragma unroll
                for (int R = 0; R < ROWS; R++) {
                    const bool is_j = lane + LANES * R == j;
                    factor[R] = is_j ? 0 : a[R][0] * one_over;
                    b[R] -= factor[R] * b_j;
                    if (is_j) pivot[R] = one_over;
                }
#pragma unroll
                for (int x = 0; x < WIDTH - from; x += 4) {
                    const four u = load(now + x);
#pragma unroll
                    for (int R = 0; R < ROWS; R++) {
                        if (x > 0) a[R][x - 1] = a[R][x] - factor[R] * u.x;
                        a[R][x] = a[R][x + 1] - factor[R] * u.y;
                        a[R][x + 1] = a[R][x + 2] - factor[R] * u.z;
                        a[R][x + 2] = a[R][x + 3] - factor[R] * u.w;
                    }
                }
            }
        }
#pragma unroll
        for (int R = 0; R < ROWS; R++) {
            const int r = lane + LANES * R;
            p_own[R] = r < DIM ? b[R] * pivot[R] : 0;
            if (here && r < DIM) user_vectors[phone * DIM + r] = p_own[R];
        }
    }
    real length = 0;  // ‖p‖²
#pragma unroll
    for (int R = 0; R < ROWS; R++) {
        const int r = lane + LANES * R;
        if (r < WIDTH) p[r] = p_own[R];
        length += p_own[R] * p_own[R];
    }
    length = sum_lanes(length);
    __syncwarp();

    // D and the loss of own apps, eq. (3); `c` becomes D, `inverse` D over the denominator. Beyond
    // the phone's own apps all of these are 0.
    real loss = 0, tastes_squared = 0;
    for (int base = 0; base < most; base += SPAN * EACH) {
#pragma unroll
        for (int E = 0; E < EACH; E++) {
            const int i = base + place + SPAN * E, row = i < most ? i : 0;
            real taste = 0;
#pragma unroll
            for (int x = 0; x < PART; x += 4) {
                const four q = load(own + row * STRIDE + part + x), u = load(p + part + x);
                taste += q.x * u.x;
                taste += q.y * u.y;
                taste += q.z * u.z;
                taste += q.w * u.w;
            }
            if (LANES > SPAN) taste += __shfl_xor_sync(ALL, taste, SPAN);
            if (i < most && lane < SPAN) {
                const real residual = taste + h[i] - 1, D = c[i] * residual;
                loss += (real)0.5 * D * residual;
                if (DENSE) {
                    loss -= (real)0.5 * c0 * taste * taste;
                    tastes_squared += taste * taste;
                    tastes[i] = taste;
                }
                c[i] = D;
                inverse[i] *= D;
            }
        }
    }
    __syncwarp();

    // F at own apps, eq. (12), with its background
    real square = 0, sizes = 0, tallest = 0;
    for (int base = 0; base < most; base += SPAN * EACH) {
        int row[EACH];
        real f[EACH][PART], e[EACH];
#pragma unroll
        for (int E = 0; E < EACH; E++) {
            const int i = base + place + SPAN * E;
            row[E] = i < most ? i : 0;
            e[E] = i < most ? inverse[i] : 0;
            const real D = i < most ? c[i] : 0;
#pragma unroll
            for (int x = 0; x < PART; x++) f[E][x] = D * p[part + x];
        }
        for (int j = 0; j < most; j++) {
            const real e_j = inverse[j];
            real B[EACH];
#pragma unroll
            for (int E = 0; E < EACH; E++)
                B[E] = e[E] * N[row[E] * n_stride + j] + e_j * N[j * n_stride + row[E]];
#pragma unroll
            for (int x = 0; x < PART; x += 4) {
                const four q = load(own + j * STRIDE + part + x);
#pragma unroll
                for (int E = 0; E < EACH; E++) {
                    f[E][x] += B[E] * q.x;
                    f[E][x + 1] += B[E] * q.y;
                    f[E][x + 2] += B[E] * q.z;
                    f[E][x + 3] += B[E] * q.w;
                }
            }
        }
        __syncwarp();  // F may take the place of own
#pragma unroll
        for (int E = 0; E < EACH; E++) {
            if (base + place + SPAN * E >= k) continue;
#pragma unroll
            for (int x = 0; x < PART; x++) {
                square += f[E][x] * f[E][x];
                if (ball == L1) sizes += size_of(f[E][x]);
                if (ball == 0) tallest = size_of(f[E][x]) > tallest ? size_of(f[E][x]) : tallest;
            }
#pragma unroll
            for (int x = 0; x < PART; x += 4) {
                const four out = {f[E][x], f[E][x + 1], f[E][x + 2], f[E][x + 3]};
                *reinterpret_cast<four *>(F + row[E] * STRIDE + part + x) = out;
            }
        }
    }
    square = sum_lanes(square);
    loss = sum_lanes(loss);
    __syncwarp();

    if (DENSE) {
        tastes_squared = sum_lanes(tastes_squared);
        real everywhere = 0;  // ‖Q p‖²
#pragma unroll
        for (int R = 0; R < ROWS; R++) {
            const int r = lane + LANES * R;
            real product = 0;
            if (r < WIDTH)
                for (int x = 0; x < WIDTH; x++) product += gram[r + x * WIDTH] * p[x];
            everywhere += product * p_own[R];
        }
        everywhere = sum_lanes(everywhere);
        const real others = everywhere - tastes_squared;
        square += c0 * c0 * length * (others > 0 ? others : 0);
        loss += (real)0.5 * c0 * everywhere;
    }
    loss += (real)0.5 * (real)lam * length;

    // x: F moved into the ball, in units of the clip
    real divisor = ball == LINF ? (real)clip : 1;
    if (ball == L1) {
        if (DENSE) {
            real around = 0, reach = 0;  // Σ |q·p| over the apps of others, Σ |p|
            for (int app = lane; app < n_apps; app += LANES) around += size_of(taste_of(Q, app, p));
            for (int i = lane; i < k; i += LANES) around -= size_of(tastes[i]);
            around = sum_lanes(around);
#pragma unroll
            for (int R = 0; R < ROWS; R++) reach += size_of(p_own[R]);
            reach = sum_lanes(reach);
            if (lane == 0) sizes += c0 * reach * (around > 0 ? around : 0);
        }
        sizes = sum_lanes(sizes);
        divisor = sizes > clip ? sizes : (real)clip;
    }
    bool on_sphere = false;
    if (ball == L2) {
        const real norm = sqrt(square);
        on_sphere = norm > clip;
        divisor = on_sphere ? norm : (real)clip;
    }
    const real one_over = 1 / divisor;
    const bool bad = !(square <= (real)3.0e38);
    if (ball == 0) tallest = max_lanes(tallest);
    if (here && lane == 0) {
        if (bad) atomicMin(first_bad, (u64)phone);
        if (ball == 0 && tallest > limit && !bad)
            atomicMax(largest, (u64)__float_as_uint((float)tallest));
        losses[index] = loss;
        const real inside = square * one_over * one_over;
        squares_of_x[index] = on_sphere || (ball >= L1 && inside > 1) ? 1 : inside;
    }

    // Σ x: own rows less their background, which is Q Σ c0 p pᵀ for all apps at once, unless the
    // clip might cut it
    if (DENSE) {
        bool by_entry = false;
        if (ball == LINF) {
            real highest = 0;
#pragma unroll
            for (int R = 0; R < ROWS; R++)
                highest = size_of(p_own[R]) > highest ? size_of(p_own[R]) : highest;
            highest = max_lanes(highest);
            by_entry = here && longest * (c0 * sqrt(length) * highest) > clip;
        }
        if (here && lane == 0) common_c0[index] = by_entry ? 0 : c0 * one_over;
        if (by_entry && !bad) {
            for (int app = lane; app < n_apps; app += LANES) {
                const real shared = c0 * taste_of(Q, app, p) * one_over;
                for (int x = 0; x < DIM; x++)
                    add_whole(sums, (i64)app * DIM + x, cut(shared * p[x], 1), (real)scale);
            }
        }
    }
    const real most_of_x = ball == LINF ? (real)1 : (real)3.0e38;
    for (int i = 0; i < most; i++) {
        if (i >= k || bad) continue;
        const real shared = DENSE ? c0 * tastes[i] * one_over : 0;
        i64 *into = sums + (i64)mine[i] * DIM;
#pragma unroll
        for (int R = 0; R < ROWS; R++) {
            const int x = lane + LANES * R;
            if (x >= DIM) continue;
            const real entry = cut(F[i * STRIDE + x] * one_over, most_of_x);
            real term = entry;
            if (DENSE) term -= cut(shared * p_own[R], most_of_x);
            add_whole(into, x, term, (real)scale);
            if (rows) rows[(row_starts[index] + i) * DIM + x] = entry;
        }
    }

    for (int t = 0; t < n_positions; t++) {
        const int position = here ? positions[index * n_positions + t] : 0;
        const int app = position / DIM;
        int found = -1;
        for (int i = lane; i < k; i += LANES) found = mine[i] == app ? i : found;
        for (int away = LANES / 2; away > 0; away /= 2) {
            const int other = __shfl_xor_sync(ALL, found, away);
            found = other > found ? other : found;
        }
        real value = 0;
        if (DENSE) {
#pragma unroll
            for (int R = 0; R < ROWS; R++) {
                const int r = lane + LANES * R;
                if (r < WIDTH) value += Q[(i64)app * WIDTH + r] * p_own[R];
            }
            value = sum_lanes(value) * c0 * p[position % DIM];
        }
        if (found >= 0) value = F[found * STRIDE + position % DIM];
        if (here && lane == 0) entries[index * n_positions + t] = value;
    }
}

#define PARAMETERS                                                                                \
    const int *phones, i64 n, int capacity, real *scratch, const i64 *app_starts,                 \
        const int *apps, const int *counts, const i64 *transition_starts, const unsigned *moves,  \
        const short *previous, const short *following, const int *times, const real *Q,           \
        const real *gram, int n_apps,                                                             \
        double longest, double lam, double alpha, double gamma, int reading, real *user_vectors,  \
        int ball, double clip, double scale, double limit, i64 *sums,                             \
        u64 *largest, u64 *first_bad, real *losses, real *common_c0,                         \
        real *squares_of_x, const int *positions, int n_positions, real *entries,                 \
        const i64 *row_starts, real *rows
#define ARGUMENTS                                                                                 \
    phones, n, capacity, scratch, app_starts, apps, counts, transition_starts, moves, previous,   \
        following, times, Q, gram, n_apps, longest, lam, alpha, gamma, reading, user_vectors,     \
        ball, clip, scale, limit, sums, largest, first_bad, losses, common_c0,           \
        squares_of_x, positions, n_positions, entries, row_starts, rows

extern "C" __global__ void __launch_bounds__(128, MIN_BLOCKS)
    play_phones(PARAMETERS) {
    play<false, FEW>(ARGUMENTS);
}

// Phones with more than 16 apps.
extern "C" __global__ void __launch_bounds__(128, MIN_BLOCKS) play_wide_phones(PARAMETERS) {
    play<false, MANY>(ARGUMENTS);
}

// Phones with more apps than shared memory has room for: their workspaces are in `scratch`.
extern "C" __global__ void __launch_bounds__(128, 2) play_large_phones(PARAMETERS) {
    play<true, MANY>(ARGUMENTS);
}

// Σ c0 p pᵀ (DIM, DIM) of the phones of each block in double, BATCH of them at a time, by 256
// threads; blocks are added in their order by whoever asked.
constexpr int BATCH = 32, CELLS = (DIM * DIM + 255) / 256;

extern "C" __global__ void __launch_bounds__(256)
    sum_backgrounds(const int *phones, i64 n, const real *user_vectors, const real *common_c0,
                    i64 per_block, double *partial) {
    extern __shared__ four room[];
    double *p = reinterpret_cast<double *>(room), *scaled = p + BATCH * DIM;
    const i64 first = blockIdx.x * per_block, last = first + per_block < n ? first + per_block : n;
    double total[CELLS];
#pragma unroll
    for (int m = 0; m < CELLS; m++) total[m] = 0;
    for (i64 from = first; from < last; from += BATCH) {
        __syncthreads();
        for (int v = threadIdx.x; v < BATCH * DIM; v += blockDim.x) {
            const i64 index = from + v / DIM;
            const bool here = index < last;
            p[v] = here ? user_vectors[(i64)phones[index] * DIM + v % DIM] : 0;
            scaled[v] = here ? common_c0[index] * p[v] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int m = 0; m < CELLS; m++) {
            const int cell = threadIdx.x + 256 * m, x = cell / DIM % DIM, y = cell % DIM;
            for (int one = 0; one < BATCH; one++)
                total[m] += scaled[one * DIM + x] * p[one * DIM + y];
        }
    }
#pragma unroll
    for (int m = 0; m < CELLS; m++) {
        const int cell = threadIdx.x + 256 * m;
        if (cell < DIM * DIM) partial[(i64)blockIdx.x * DIM * DIM + cell] = total[m];
    }
}
