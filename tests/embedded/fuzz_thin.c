/* For libFuzzer: any memory as a state, then samples and messages, of which half get the right head and CRC. Whatever
   comes, nothing is undefined, what is no later table changes nothing, and a table that was taken holds. */
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
    if (bin >= HINGE_BINS) {
        CHECK(offload && memcmp(state->bins, before.bins, sizeof before.bins) == 0);
        return;
    }
    CHECK(offload == !before.bins[bin].left);
    CHECK(state->accepted == (offload ? before.bins[bin].granted : 0));
}

static void take(struct hinge *state, const uint8_t *message, uint32_t length)
{
    const struct hinge before = *state;
    uint_fast8_t bin;
    if (!hinge_take(state, message, length)) {
        CHECK(memcmp(state, &before, sizeof before) == 0);
        return;
    }
    CHECK(length == HINGE_TABLE_BYTES && state->counter > before.counter);
    for (bin = 0; bin < HINGE_BINS; bin++) {
        const uint32_t licence = message[8 + 2 * bin] | (uint32_t)message[9 + 2 * bin] << 8;
        if (before.bins[bin].left <= before.bins[bin].granted)
            CHECK(state->bins[bin].left <= licence && state->bins[bin].left <= state->bins[bin].granted);
    }
}

static void seal(uint8_t *message)
{
    const uint8_t head[] = {'h', 'T', 1, HINGE_BINS};
    uint32_t crc;
    uint_fast8_t byte;
    memcpy(message, head, sizeof head);
    crc = hinge_crc(0, message, HINGE_TABLE_BYTES - 4);
    for (byte = 0; byte < 4; byte++)
        message[HINGE_TABLE_BYTES - 4 + byte] = (uint8_t)(crc >> 8 * byte);
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
    while (size >= 2) {
        const uint32_t length = data[1] % (2 * HINGE_TABLE_BYTES);
        uint8_t *message = NULL;
        if (data[0] & 1 || size < 2 + (size_t)length) {
            decide(&state, data[1] % (HINGE_BINS + 2));
            data += 2;
            size -= 2;
            continue;
        }
        message = malloc(length ? length : 1); /* of this very size, so that the sanitizer sees what is beyond */
        CHECK(message);
        memcpy(message, data + 2, length);
        if (data[0] & 2 && length == HINGE_TABLE_BYTES)
            seal(message);
        take(&state, message, length);
        free(message);
        data += 2 + length;
        size -= 2 + length;
    }
    return 0;
}
