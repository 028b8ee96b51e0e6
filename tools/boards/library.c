/* The library as functions that other languages can call. */
#define HINGE_IMPLEMENTATION
#include "hinge.h"

uint8_t decide(struct hinge *state, uint8_t bin);
void learn(struct hinge *state, uint8_t bin, uint8_t agreed);
uint8_t bin_of(uint32_t confidence);
uint8_t bin_from_int8(int8_t max_softmax_q);
uint32_t seal(const struct hinge *state);
uint8_t is_sound(const struct hinge *state, uint32_t sealed);

uint8_t decide(struct hinge *state, uint8_t bin)
{
    return hinge_decide(state, bin);
}

void learn(struct hinge *state, uint8_t bin, uint8_t agreed)
{
    hinge_learn(state, bin, agreed != 0);
}

uint8_t bin_of(uint32_t confidence)
{
    return hinge_bin(confidence);
}

uint8_t bin_from_int8(int8_t max_softmax_q)
{
    return hinge_bin_from_int8(max_softmax_q);
}

uint32_t seal(const struct hinge *state)
{
    return hinge_seal(state);
}

uint8_t is_sound(const struct hinge *state, uint32_t sealed)
{
    return hinge_is_sound(state, sealed);
}
