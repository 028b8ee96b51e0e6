/* For libFuzzer: any memory as a state, then any calls. Whatever it holds, nothing is undefined, time goes back only
   where all records are dropped, and nothing but the state is written. */
#define HINGE_IMPLEMENTATION
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "hinge.h"

#define CHECK(condition) \
    if (!(condition))    \
    abort()

static void decide(struct hinge *state, uint8_t bin)
{
    const struct hinge before = *state;
    const bool offload = hinge_decide(state, bin);
    CHECK(state->time == before.time + (before.time < HINGE_CLOCK_END));
#ifdef HINGE_PROBATION
    CHECK(offload == (bin >= HINGE_BINS || !before.bins[bin].left));
#else
    CHECK(offload == (bin >= HINGE_BINS || state->time >= state->bins[bin].expiry));
#endif
}

static void learn(struct hinge *state, uint8_t bin, bool agreed)
{
    const struct hinge before = *state;
    hinge_learn(state, bin, agreed);
    if (bin >= HINGE_BINS) {
        CHECK(memcmp(state, &before, sizeof before) == 0);
        return;
    }
#ifdef HINGE_PROBATION
    CHECK(state->time == before.time || state->time == 1);
    CHECK(state->bins[bin].left == state->bins[bin].granted && state->bins[bin].left <= 0x40000000u);
#else
    CHECK(state->time == before.time);
    CHECK(state->bins[bin].expiry >= 1);
#endif
    CHECK(state->bins[bin].offloads >= 1);
    if (before.bins[bin].agreements <= before.bins[bin].offloads)
        CHECK(state->bins[bin].agreements <= state->bins[bin].offloads);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hinge state = {0};
    if (size & 1) {
        const size_t length = size < sizeof state ? size : sizeof state;
        memcpy(&state, data, length);
        data += length;
        size -= length;
    }
    for (; size >= 2; data += 2, size -= 2) {
        const uint8_t bin = data[0] & 0x80 ? data[1] : hinge_bin_from_int8((int8_t)data[1]);
        if (data[0] & 1)
            decide(&state, bin);
        else
            learn(&state, bin, (data[0] & 2) != 0);
    }
    return 0;
}
