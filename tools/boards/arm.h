/* Semihosting: how a program on an emulated or debugged ARM asks its host for something. */
#ifndef ARM_H
#define ARM_H

#include <stdint.h>

#define ARM_OPEN 0x01u
#define ARM_WRITEC 0x03u
#define ARM_WRITE 0x05u
#define ARM_READ 0x06u
#define ARM_EXIT 0x18u
#define ARM_EXITED 0x20026u

uint32_t arm_call(uint32_t operation, const void *argument);

#endif
