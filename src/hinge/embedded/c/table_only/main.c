/* An example: bring your own local model in place of the made-up function below. The table comes from elsewhere;
   to renew it, write to gate.bins[].left and .granted where licences are counted down; else to gate.bins[].expiry and,
   if the clock it was made for is another, to gate.time. */
#include <stdio.h>

#include "hinge.h"

static struct hinge gate = HINGE_START;

/* The largest softmax output of an int8 model, for one sample. */
static int8_t local_confidence(unsigned int sample)
{
    return (int8_t)((int)((sample * 97u) & 0xFFu) - 128);
}

int main(void)
{
    unsigned int sample, offloads = 0;
    for (sample = 0; sample < 1000u; sample++)
        offloads += hinge_decide(&gate, hinge_bin_from_int8(local_confidence(sample)));
    printf("%u of %u samples offloaded\n", offloads, sample);
    return 0;
}
