// An example: put your model's largest softmax output in place of the analogue reading.
#include <hinge.h>

static struct hinge gate = HINGE_START;

void setup() {
  Serial.begin(115200);
}

void loop() {
  const int8_t confidence = static_cast<int8_t>(analogRead(A0) / 4 - 128);
  const uint8_t bin = hinge_bin_from_int8(confidence);
  if (hinge_decide(&gate, bin)) {
    Serial.println("offload");  // and, where the device learns, hinge_learn once the remote has answered
  } else {
    Serial.println("accept");
  }
}
