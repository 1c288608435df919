// CUDA's threads on one processor, for tests: a block's threads are fibers that take turns, and wait
// for each other where a warp works together. A thread that is left waiting alone is an error: on a
// card that would be a hang, or worse.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __launch_bounds__(...)

struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace fibers {
struct Fiber {
    jmp_buf here;
    bool done = false, waits = false;
};
static std::vector<Fiber> threads;
static std::vector<std::vector<char>> stacks;  // kept from block to block
static ucontext_t context, main_context;
static jmp_buf scheduler;

// Jumps between fibers, unlike swapcontext, ask nothing of the operating system.
static void leave(Fiber &fiber) {
    if (!_setjmp(fiber.here)) _longjmp(scheduler, 1);
}
static unsigned char values[1024][16];
static unsigned arrived[32];

static void wait_for_warp() {
    const unsigned warp = threadIdx.x / 32, thread = threadIdx.x;
    const unsigned size = std::min(32u, blockDim.x - warp * 32);
    if (++arrived[warp] == size) {
        arrived[warp] = 0;
        for (unsigned lane = 0; lane < size; lane++) threads[warp * 32 + lane].waits = false;
        return;
    }
    threads[thread].waits = true;
    while (threads[thread].waits) leave(threads[thread]);
}

static unsigned arrived_in_block;

static void wait_for_block() {
    const unsigned thread = threadIdx.x;
    if (++arrived_in_block == blockDim.x) {
        arrived_in_block = 0;
        for (auto &each : threads) each.waits = false;
        return;
    }
    threads[thread].waits = true;
    while (threads[thread].waits) leave(threads[thread]);
}

template <typename T>
T exchange(T value, unsigned from) {
    memcpy(values[threadIdx.x], &value, sizeof(T));
    wait_for_warp();
    T found;
    memcpy(&found, values[threadIdx.x / 32 * 32 + from], sizeof(T));
    wait_for_warp();
    return found;
}

static void (*work)(void *);
static void *given;

static void begin() {
    const unsigned thread = threadIdx.x;
    if (!_setjmp(threads[thread].here)) swapcontext(&context, &main_context);  // until its turn
    work(given);
    threads[thread].done = true;
    leave(threads[thread]);
}

static bool run_block(unsigned n_threads) {
    threads.assign(n_threads, Fiber());
    memset(arrived, 0, sizeof(arrived));
    arrived_in_block = 0;
    if (stacks.size() < n_threads) stacks.resize(n_threads, std::vector<char>(256 * 1024));
    for (threadIdx.x = 0; threadIdx.x < n_threads; threadIdx.x++) {
        getcontext(&context);
        context.uc_stack.ss_sp = stacks[threadIdx.x].data();
        context.uc_stack.ss_size = stacks[threadIdx.x].size();
        context.uc_link = nullptr;
        makecontext(&context, begin, 0);
        swapcontext(&main_context, &context);
    }
    for (unsigned left = n_threads; left > 0;) {
        bool moved = false;
        for (unsigned number = 0; number < n_threads; number++) {
            if (threads[number].done || threads[number].waits) continue;
            threadIdx.x = number;
            moved = true;
            if (!_setjmp(scheduler)) _longjmp(threads[number].here, 1);
            left -= threads[number].done;
        }
        if (!moved) return false;  // all that are left wait for threads that have gone
    }
    return true;
}
}  // namespace fibers

inline void __syncthreads() { fibers::wait_for_block(); }
inline void __syncwarp() { fibers::wait_for_warp(); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int away) {
    return fibers::exchange(value, threadIdx.x % 32 ^ (unsigned)away);
}

template <typename T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    return fibers::exchange(value, threadIdx.x % 32 / width * width + lane);
}

inline unsigned __ballot_sync(unsigned, bool vote) {
    unsigned found = 0;
    const unsigned warp = threadIdx.x / 32 * 32;
    fibers::values[threadIdx.x][0] = vote;
    fibers::wait_for_warp();
    for (unsigned lane = 0; lane < 32; lane++)
        found |= (unsigned)(warp + lane < blockDim.x && fibers::values[warp + lane][0]) << lane;
    fibers::wait_for_warp();
    return found;
}

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __ffs(unsigned value) { return __builtin_ffs((int)value); }

template <typename T>
T atomicAdd(T *at, T value) {
    const T before = *at;
    *at += value;
    return before;
}

template <typename T>
T atomicMin(T *at, T value) {
    const T before = *at;
    *at = std::min(before, value);
    return before;
}

template <typename T>
T atomicMax(T *at, T value) {
    const T before = *at;
    *at = std::max(before, value);
    return before;
}

inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// Starts a kernel as CUDA's driver does: a pointer to each argument. 0: well; 1: a thread hung.
template <typename... Args, size_t... I>
int launch(void (*kernel)(Args...), unsigned n_blocks, unsigned n_threads, void **arguments,
           std::index_sequence<I...>) {
    typedef std::tuple<void (*)(Args...), std::tuple<Args...>> Call;
    Call call(kernel, std::tuple<Args...>(*static_cast<Args *>(arguments[I])...));
    fibers::given = &call;
    fibers::work = [](void *given) {
        Call &now = *static_cast<Call *>(given);
        std::apply(std::get<0>(now), std::get<1>(now));
    };
    gridDim.x = n_blocks;
    blockDim.x = n_threads;
    for (blockIdx.x = 0; blockIdx.x < n_blocks; blockIdx.x++)
        if (!fibers::run_block(n_threads)) return 1;
    return 0;
}

#define LAUNCHER(kernel)                                                                        \
    extern "C" int launch_##kernel(unsigned n_blocks, unsigned n_threads, void **arguments) {   \
        return launch_any(kernel, n_blocks, n_threads, arguments);                              \
    }

template <typename... Args>
int launch_any(void (*kernel)(Args...), unsigned n_blocks, unsigned n_threads, void **arguments) {
    return launch(kernel, n_blocks, n_threads, arguments, std::index_sequence_for<Args...>());
}
