// Bits on a card, word for word those of `nextapp.randomness.KeyedBits`. Equal functions of
// `nextapp.compiled_bits` have the same names.

typedef int i32;
typedef long long i64;
typedef unsigned long long u64;

constexpr unsigned ALL = 0xffffffffu;

struct Block {
    u64 x0, x1, x2, x3;
};

__device__ inline Block philox(u64 key_0, u64 key_1, u64 x0, u64 x1, u64 x2, u64 x3) {
    for (int turn = 0; turn < 10; turn++) {
        const u64 high_0 = __umul64hi(0xD2E7470EE14C6C93ull, x0);
        const u64 high_2 = __umul64hi(0xCA5A826395121157ull, x2);
        const u64 low_0 = 0xD2E7470EE14C6C93ull * x0, low_2 = 0xCA5A826395121157ull * x2;
        x0 = high_2 ^ x1 ^ key_0;
        x1 = low_2;
        x2 = high_0 ^ x3 ^ key_1;
        x3 = low_0;
        key_0 += 0x9E3779B97F4A7C15ull;
        key_1 += 0xBB67AE8584CAA73Bull;
    }
    return {x0, x1, x2, x3};
}

// A stream of words. Word `at` stands in block at / 4, which has the counter at / 4 + 1.
struct Bits {
    u64 seed, purpose, phone, round, at;
    Block block;

    __device__ Bits(u64 seed, u64 phone, u64 round, u64 purpose)
        : seed(seed), purpose(purpose), phone(phone), round(round), at(0) {}

    __device__ Block block_of(u64 number) const {
        return philox(seed, purpose, number / 4 + 1, phone, round, 0);
    }

    __device__ static u64 choose(const Block &from, u64 number) {
        const int place = (int)(number % 4);
        return place == 0 ? from.x0 : place == 1 ? from.x1 : place == 2 ? from.x2 : from.x3;
    }

    __device__ u64 word() {
        if (at % 4 == 0) block = block_of(at);
        return choose(block, at++);
    }

    __device__ u64 word_at(u64 number) const { return choose(block_of(number), number); }

    __device__ void jump(u64 to) {
        at = to;
        if (at % 4) block = block_of(at);
    }
};

__device__ inline double as_uniform(u64 drawn) { return (double)(drawn >> 11) * 0x1p-53; }
__device__ inline double as_exponential(u64 drawn) { return -log1p(-as_uniform(drawn)); }
__device__ inline double as_normal(u64 first, u64 second) {
    return sqrt(2.0 * as_exponential(first)) * cos(2.0 * 3.141592653589793 * as_uniform(second));
}

__device__ inline i64 below(Bits &bits, u64 bound) {
    const u64 rest = (0 - bound) % bound;  // 2^64 mod bound
    while (true) {
        const u64 drawn = bits.word();
        if (rest == 0 || drawn < 0 - rest) return (i64)(drawn % bound);
    }
}
