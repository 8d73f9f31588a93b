/* The cases that verify itself brings. */
#ifndef OCT_VERIFY_CASES_H
#define OCT_VERIFY_CASES_H

#include "verify/verify.h"

#endif
