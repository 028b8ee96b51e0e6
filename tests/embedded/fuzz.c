/* For libFuzzer: any memory as a state, then any calls. Whatever it holds, nothing is undefined, time never goes back,
   and what was learned is kept. */
#define HINGE_IMPLEMENTATION
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "hinge.h"

#define CHECK(condition) \
    if (!(condition))    \
    abort()

#ifdef HINGE_SENTINEL
static void decide(struct hinge *state, uint8_t bin)
{
    const bool licensed = bin < HINGE_BINS && state->bins[bin].left;
    const uint32_t before = state->time;
    const bool offload = hinge_decide(state, bin);
    CHECK(before < HINGE_CLOCK_END ? state->time == before + 1 || state->time == 1 : state->time <= before);
    CHECK(!(licensed && offload));
    CHECK(offload || state->bins[bin].left < state->bins[bin].granted || licensed);
}
#else
static void decide(struct hinge *state, uint8_t bin)
{
    const uint32_t before = state->time;
    const bool offload = hinge_decide(state, bin);
    CHECK(before < HINGE_CLOCK_END ? state->time == before + 1 : state->time == before);
    CHECK(offload == (bin >= HINGE_BINS || state->time >= state->bins[bin].expiry));
}
#endif

static void learn(struct hinge *state, uint8_t bin, bool agreed, uint16_t cost)
{
    const struct hinge before = *state;
#ifdef HINGE_LEARNED_COST
    hinge_learn(state, bin, agreed, cost);
#else
    (void)cost;
    hinge_learn(state, bin, agreed);
#endif
    CHECK(state->time == before.time);
    if (bin >= HINGE_BINS) {
        CHECK(memcmp(state, &before, sizeof before) == 0);
        return;
    }
#ifndef HINGE_SENTINEL
    CHECK(state->bins[bin].expiry >= 1);
    CHECK(state->bins[bin].offloads >= 1);
    if (before.bins[bin].agreements <= before.bins[bin].offloads)
        CHECK(state->bins[bin].agreements <= state->bins[bin].offloads);
#endif
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
            learn(&state, bin, (data[0] & 2) != 0, (uint16_t)(data[0] << 8 | data[1]));
    }
    return 0;
}
