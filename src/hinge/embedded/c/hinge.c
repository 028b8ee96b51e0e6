#define HINGE_IMPLEMENTATION
#include "hinge.h"
