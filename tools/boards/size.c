/* What a program takes on: the decision as a function of its own, learning, and the state. */
#define HINGE_IMPLEMENTATION
#include "hinge.h"

bool decide(struct hinge *state, uint8_t bin);
struct hinge state;

bool decide(struct hinge *of, uint8_t bin)
{
    return hinge_decide(of, bin);
}
