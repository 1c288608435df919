// The columns of a fleet, as `nextapp.fleet.gpu.reporting` places them on a card.

// As parameters of a kernel, in the order of `ResidentFleet.columns`.
#define COLUMNS                                                                                  \
    const i64 *app_starts, const i32 *apps, const i32 *counts, const i64 *transition_starts,     \
        const unsigned *words, const short *previous, const short *following, const i32 *times
#define COLUMN_NAMES app_starts, apps, counts, transition_starts, words, previous, following, times

struct Move {
    i32 previous, following, times;  // places among the own apps, and how often
};

struct Columns {
    const i64 *app_starts;
    const i32 *apps, *counts;
    const i64 *transition_starts;
    const unsigned *words;  // transitions as words, or
    const short *previous, *following;
    const i32 *times;

    __device__ Move move(i64 at) const {
        if (!words) return {previous[at], following[at], times[at]};
        const unsigned word = words[at];
        return {(i32)(word & 255), (i32)(word >> 8 & 255), (i32)(word >> 16)};
    }
};
